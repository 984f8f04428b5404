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

/** Pause before the first attempt to come back; each is twice the one before, up to the longest. */
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2_000;

/** How to dial a lost connection anew. */
export interface ComingBack {
  /** Until when to try, as performance.now() has it. */
  readonly untilMs: number;
  /** Aborting gives up. */
  readonly signal: AbortSignal;
  /** Resolves when the agent has answered. */
  readonly attempt: () => Promise<void>;
  /** Every attempt reads the credentials anew. */
  readonly hasNewCredentials: boolean;
}

/** Whether another attempt is worth it: connections fail without a reason of the agent's; new credentials may be late. */
export function mayPass({ status, reason }: GuestError, hasNewCredentials: boolean): boolean {
  if (status === "UNAUTHENTICATED") return hasNewCredentials;
  return reason === undefined && ["UNAVAILABLE", "INTERNAL", "CANCELLED", "UNKNOWN"].includes(status);
}

/**
 * Tries until an attempt succeeds. Rejects with GuestError: that of the last attempt where it will not pass or the time is
 * up, or `lost` where there was none.
 */
export async function comeBack(lost: GuestError, coming: ComingBack): Promise<void> {
  const { untilMs, signal, attempt, hasNewCredentials } = coming;
  let failure = lost;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    if (performance.now() + pauseMs > untilMs) throw failure;
    await pauseFor(pauseMs, signal);
    try {
      await attempt();
      return;
    } catch (error) {
      failure = error instanceof GuestError ? error : notDialled(error);
      // Credentials that are just being replaced make it impossible to dial for a moment.
      if (failure === error && !mayPass(failure, hasNewCredentials)) throw failure;
    }
  }
}

function notDialled(cause: unknown): GuestError {
  const message = `the agent cannot be dialled: ${cause instanceof Error ? cause.message : String(cause)}`;
  return new GuestError({ status: "UNAVAILABLE", message, cause });
}
