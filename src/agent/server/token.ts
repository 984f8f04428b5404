import { AgentError } from "../domain/index.ts";
import type { RequestFields, SecretField } from "../http2/index.ts";
import type { Interceptor } from "../rpc/index.ts";

/** Metadata key of the instance token (contract, "Authentication"). */
const TOKEN_METADATA_KEY = "svc-instance-token";

/** How an authenticator checks the instance token. */
export interface TokenCheck {
  /** The digest of a token that a caller sends, as visible ASCII: from then on nobody has the token itself. */
  digest(candidate: Uint8Array): string;
  /** Whether it is the token's digest. Constant time, with the same work for a missing one. */
  matches(digest: string | undefined): boolean;
  /** Identity of the current token: another object once there is a new token. */
  readonly current: () => object;
}

/** The field of requests that holds the token: connections give its digest to the authenticator. */
export function tokenField({ digest }: Pick<TokenCheck, "digest">): SecretField {
  return { name: TOKEN_METADATA_KEY, conceal: digest };
}

/**
 * Admits calls with the instance token. A missing, empty, repeated or wrong one gets the same answer after the same
 * work.
 *
 * @param renewed called before a refusal, to reload the token; then the call's token is compared once more
 */
export function tokenAuthenticator(token: TokenCheck, renewed?: () => Promise<unknown>): Interceptor {
  // A connection's later calls of a kind have the same fields object (HeaderBlocks). So an admitted token is not hashed
  // again, which saves a tenth of a small call. The timing reveals only a token that the client has proven to know.
  const admitted = new WeakMap<RequestFields, object>();
  return (metadata) => {
    if (admitted.get(metadata) === token.current()) return undefined;
    // Repeated fields are joined with ", ", and no digest holds a space.
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
