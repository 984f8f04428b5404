import type { GuestClient } from "../../client/index.ts";
import type { ClientCredentials } from "../../credentials/index.ts";
import { CALL_MS, callLimits, reached } from "./guest.ts";
import type { GuestFile } from "./injection.ts";

export type DialWith = (credentials: ClientCredentials) => Promise<GuestClient>;

/**
 * Limits on waiting for an agent: how long it may take to answer, in milliseconds, and a signal that ends the wait
 * early.
 */
export interface HandoverLimits {
  readonly reachTimeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * All combinations of certificates and token that an agent may accept while its files are replaced one by one. The
 * likeliest combination comes first, because each wrong one costs a refused call and a line in the agent's log.
 */
export function credentialMixtures(
  old: ClientCredentials,
  fresh: ClientCredentials,
  isFreshLikelier: boolean,
): readonly ClientCredentials[] {
  const caPem = Buffer.concat([old.caPem, fresh.caPem]);
  const whole = [
    { ...old, caPem },
    { ...fresh, caPem },
  ];
  if (isFreshLikelier) whole.reverse();
  return [...whole, { ...fresh, caPem, token: old.token }, { ...old, caPem, token: fresh.token }];
}

/** Returns a client with the credentials that the agent accepts at the moment. Rejects with AGENT_UNREACHABLE. */
export function acceptedClient(
  dial: DialWith,
  mixtures: readonly ClientCredentials[],
  { reachTimeoutMs, signal }: HandoverLimits,
): Promise<GuestClient> {
  const problem = "the agent has accepted neither the old nor the new credentials";
  const attempt = async (deadlineMs: number): Promise<GuestClient> => {
    let refusal: unknown;
    for (const credentials of mixtures) {
      const client = await dial(credentials);
      try {
        await client.health(callLimits(deadlineMs));
        return client;
      } catch (error) {
        client.close();
        refusal ??= error;
      }
    }
    throw refusal;
  };
  return reached(reachTimeoutMs, problem, attempt, signal);
}

/**
 * Replaces the credentials of a running agent. Resolves once the agent has answered on a new connection that uses only
 * the new credentials. Can be repeated after a crash at any point, because it first finds out whether the agent accepts
 * the old credentials, the new ones, or a mixture.
 */
export async function handOver(
  dial: DialWith,
  { old, fresh, files }: { old: ClientCredentials; fresh: ClientCredentials; files: readonly GuestFile[] },
  limits: HandoverLimits,
): Promise<void> {
  const { reachTimeoutMs, signal } = limits;
  const mixtures = credentialMixtures(old, fresh, false);
  // When the agent has received only some of the files, it may already load them as its new credentials and end the
  // connection. So each retry writes all files again.
  const write = async (): Promise<void> => {
    using client = await acceptedClient(dial, mixtures, limits);
    for (const { path, content } of files)
      await client.files.writeFile(path, content, { mode: 0o600, ...callLimits(CALL_MS) });
  };
  await reached(reachTimeoutMs, "the agent has not accepted its new credentials", write, signal);
  await freshAccepted(dial, fresh, limits);
}

/** Resolves once the agent has answered on a new connection that uses only the new credentials. */
export async function freshAccepted(
  dial: DialWith,
  fresh: ClientCredentials,
  { reachTimeoutMs, signal }: HandoverLimits,
): Promise<void> {
  const prove = async (deadlineMs: number): Promise<void> => {
    using client = await dial(fresh);
    await client.health(callLimits(deadlineMs));
  };
  await reached(reachTimeoutMs, "the agent does not use its new credentials yet", prove, signal);
}
