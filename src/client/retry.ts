import { setTimeout as pause } from "node:timers/promises";
import { abortedError, GuestError } from "./errors.ts";

/** Pauses before the second and third attempt: long enough for a listener that is being replaced. */
const PAUSES_MS = [50, 250];

/** When to stop trying. */
export interface RetryLimits {
  readonly signal: AbortSignal | undefined;
  /** Milliseconds of the epoch, as Date.now() has them. */
  readonly deadlineMs: number | undefined;
}

/**
 * Makes a call that changes nothing, up to three times: again where the connection failed before the agent answered.
 * Rejects with the last attempt's error.
 */
export async function withRetries<Value>(attempt: () => Promise<Value>, limits: RetryLimits): Promise<Value> {
  for (const pauseMs of PAUSES_MS) {
    try {
      return await attempt();
    } catch (error) {
      const isLate = limits.deadlineMs !== undefined && Date.now() + pauseMs >= limits.deadlineMs;
      if (!neverAnswered(error) || isLate) throw error;
    }
    await pauseFor(pauseMs, limits.signal);
  }
  return attempt();
}

/** True for a failed connection. The agent's own UNAVAILABLE, sent while it shuts down, has a reason. */
function neverAnswered(error: unknown): boolean {
  return error instanceof GuestError && error.status === "UNAVAILABLE" && error.reason === undefined;
}

/** Waits. Rejects with GuestError once the signal is aborted. */
export async function pauseFor(pauseMs: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await pause(pauseMs, undefined, signal && { signal });
  } catch (error) {
    throw signal?.aborted === true ? abortedError(signal) : error;
  }
}
