import { AgentError } from "../domain/index.ts";
import type { Interceptor } from "../rpc/index.ts";

/** Metadata key of the instance token (contract, "Authentication"). */
export const TOKEN_METADATA_KEY = "svc-instance-token";

/**
 * Lets calls with the instance token pass. A missing, empty, repeated and wrong one get the same answer after the same
 * work: `matchesToken` must compare in constant time, and compares for a missing one too.
 *
 * @param renewed asked before a refusal, to look whether there is a new token by now; then it is compared once more
 */
export function tokenAuthenticator(
  matchesToken: (candidate: string | undefined) => boolean,
  renewed?: () => Promise<unknown>,
): Interceptor {
  return (metadata) => {
    // Repeated fields are joined with ", ", and no token holds a space.
    const candidate = metadata[TOKEN_METADATA_KEY];
    const decide = (): AgentError | undefined => (matchesToken(candidate) ? undefined : unauthenticated());
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
