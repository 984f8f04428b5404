import { setTimeout as pause } from "node:timers/promises";
import { abortedError } from "./errors.ts";

/** Pause before the second attempt; each further pause is twice the last. */
const FIRST_PAUSE_MS = 50;

/** When to try again. */
export interface Retries {
  /** Pauses between attempts; after the last there is one attempt more. */
  readonly pausesMs: Iterable<number>;
  /** Until when to try, as performance.now() has it. */
  readonly untilMs: number;
  /** Aborting gives up. */
  readonly signal: AbortSignal | undefined;
  /** Whether another attempt may succeed after this error. */
  readonly mayPass: (error: unknown) => boolean;
}

/**
 * Tries until an attempt succeeds. Rejects with the error of the last one.
 * @param first the attempt that is made already
 */
export async function retried<Value>(
  first: Promise<Value>,
  again: () => Promise<Value>,
  { pausesMs, untilMs, signal, mayPass }: Retries,
): Promise<Value> {
  let attempt = first;
  for (const pauseMs of pausesMs) {
    try {
      return await attempt;
    } catch (error) {
      if (!mayPass(error) || performance.now() + pauseMs >= untilMs) throw error;
    }
    await pauseFor(pauseMs, signal);
    attempt = again();
  }
  return attempt;
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
