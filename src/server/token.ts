import { AgentError } from "../domain/index.ts";
import type { RequestFields } from "../http2/index.ts";
import type { Interceptor } from "../rpc/index.ts";

/** Metadata key of the instance token (contract, "Authentication"). */
const TOKEN_METADATA_KEY = "svc-instance-token";

/** The instance token, as an authenticator needs it. */
export interface TokenCheck {
  /** Says whether it is the token, in constant time, with the same work for a missing one. */
  matches(candidate: string | undefined): boolean;
  /** The token in force, as an object that is another one once there is a new token. */
  readonly current: () => object;
}

/**
 * Lets calls with the instance token pass. A missing, empty, repeated and wrong one get the same answer after the same work.
 *
 * @param renewed asked before a refusal, to look whether there is a new token by now; then it is compared once more
 */
export function tokenAuthenticator(token: TokenCheck, renewed?: () => Promise<unknown>): Interceptor {
  // A connection's later calls of a kind come with the very same fields (HeaderBlocks): what was let in once need not be
  // digested again, a tenth of a small call. Nothing is learnt from it but what the client has proven to know.
  const admitted = new WeakMap<RequestFields, object>();
  return (metadata) => {
    if (admitted.get(metadata) === token.current()) return undefined;
    // Repeated fields are joined with ", ", and no token holds a space.
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
