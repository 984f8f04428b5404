import { AgentError } from "../domain/index.ts";
import type { RequestFields, SecretField } from "../http2/index.ts";
import type { Interceptor } from "../rpc/index.ts";

/** Metadata key of the instance token (contract, "Authentication"). */
const TOKEN_METADATA_KEY = "svc-instance-token";

export interface TokenCheck {
  /** Returns the digest of a caller's token, in visible ASCII. The agent keeps only the digest. */
  digest(candidate: Uint8Array): string;
  /** Whether `digest` is the digest of the instance token. Takes constant time, also for undefined. */
  matches(digest: string | undefined): boolean;
  /** Returns an object that identifies the current token. The object is the same until the token changes. */
  readonly current: () => object;
}

/** The header field that contains a request's token. Connections pass only its digest to the authenticator. */
export function tokenField({ digest }: Pick<TokenCheck, "digest">): SecretField {
  return { name: TOKEN_METADATA_KEY, conceal: digest };
}

/**
 * Admits calls with the instance token. All other calls get the same answer after the same work, whether their token is
 * missing, empty, repeated or wrong.
 *
 * @param renewed is called before a call is refused. It reloads the instance token, and the call is then checked again.
 */
export function tokenAuthenticator(token: TokenCheck, renewed?: () => Promise<unknown>): Interceptor {
  // Calls with the same header block have the same fields object (HeaderBlocks). If an earlier call with this object
  // was admitted, its token is not checked again. This saves a tenth of the time of a small call. The shorter time
  // reveals nothing, because the client has already sent this token.
  const admitted = new WeakMap<RequestFields, object>();
  return (metadata) => {
    if (admitted.get(metadata) === token.current()) return undefined;
    // If a request has the field twice, the two digests are joined with ", ". The result matches no digest, because a
    // digest contains no spaces.
    const candidate = metadata[TOKEN_METADATA_KEY];
    const decide = (): AgentError | undefined => {
      const current = token.current();
      if (!token.matches(candidate)) return unauthenticated();
      admitted.set(metadata, current);
      return undefined;
    };
    const refused = decide();
    return refused === undefined || renewed === undefined ? refused : renewed().then(decide);
  };
}

function unauthenticated(): AgentError {
  return new AgentError(
    "UNAUTHENTICATED",
    "UNAUTHENTICATED",
    `the instance token is missing or wrong; send it in the metadata key ${TOKEN_METADATA_KEY}`,
  );
}
