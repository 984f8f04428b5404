import { GuestError } from "../errors.ts";
import { pauseFor } from "../retry.ts";

/** Between two attempts; each pause is twice the one before. */
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2_000;

/** How a lost connection is dialled anew. */
export interface ComingBack {
  /** Until when to try, as performance.now() has it. */
  readonly untilMs: number;
  /** Aborted when nobody wants it any more. */
  readonly signal: AbortSignal;
  /** Resolves when the agent has answered. */
  readonly attempt: () => Promise<void>;
  /** Each attempt is made with the credentials that are right by then. */
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
      // What cannot be dialled as its credentials are just being replaced can be a moment later.
      if (failure === error && !mayPass(failure, hasNewCredentials)) throw failure;
    }
  }
}

function notDialled(cause: unknown): GuestError {
  const message = `the agent cannot be dialled: ${cause instanceof Error ? cause.message : String(cause)}`;
  return new GuestError({ status: "UNAVAILABLE", message, cause });
}
