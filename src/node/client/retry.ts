import { setTimeout as pause } from "node:timers/promises";
import { retried as retriedBy, type Retries } from "../../shared/retry.ts";
import { abortedError } from "./errors.ts";

/** Pause before the second attempt; each further pause is twice the last. */
const FIRST_PAUSE_MS = 50;

/** When to try again. Aborting the signal gives up. */
interface SignalledRetries extends Omit<Retries, "pause"> {
  readonly signal: AbortSignal | undefined;
}

/** As the shared one, until a signal is aborted: then rejects with GuestError. */
export function retried<Value>(
  first: Promise<Value>,
  again: () => Promise<Value>,
  { signal, ...retries }: SignalledRetries,
): Promise<Value> {
  return retriedBy(first, again, { ...retries, pause: (pauseMs) => pauseFor(pauseMs, signal) });
}

/** Pauses without end. */
export function* growingPauses(longestMs: number): Generator<number, never> {
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, longestMs)) yield pauseMs;
}

/** Waits. Rejects with GuestError once the signal is aborted. */
export async function pauseFor(pauseMs: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await pause(pauseMs, undefined, signal && { signal });
  } catch (error) {
    throw signal?.aborted === true ? abortedError(signal) : error;
  }
}
