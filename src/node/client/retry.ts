import { setTimeout as pause } from "node:timers/promises";
import { abortedError } from "./errors.ts";

/** Pause before the second attempt; each further pause is twice the last. */
const FIRST_PAUSE_MS = 50;

/** When to try again. */
interface Retries<Value> {
  /** Pauses between attempts; after the last there is one attempt more. */
  readonly pausesMs: Iterable<number>;
  /** When to stop trying, on performance.now(). */
  readonly untilMs: number;
  /** Whether another attempt may succeed after this error. */
  readonly isTransient: (error: unknown) => boolean;
  /** Whether what an attempt gave will do. Default: it does. */
  readonly isEnough?: (value: Value) => boolean;
  /** Aborting gives up. */
  readonly signal: AbortSignal | undefined;
}

/**
 * Tries until an attempt gives enough. Settles as the last one, or rejects with GuestError once the signal is aborted.
 *
 * @param first an attempt that has already begun
 */
export async function retried<Value>(
  first: Promise<Value>,
  again: () => Promise<Value>,
  { pausesMs, untilMs, isTransient, isEnough = () => true, signal }: Retries<Value>,
): Promise<Value> {
  let attempt = first;
  for (const pauseMs of pausesMs) {
    const isLast = (): boolean => performance.now() + pauseMs >= untilMs;
    try {
      const value = await attempt;
      if (isEnough(value) || isLast()) return value;
    } catch (error) {
      if (!isTransient(error) || isLast()) throw error;
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
async function pauseFor(pauseMs: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await pause(pauseMs, undefined, signal && { signal });
  } catch (error) {
    throw signal?.aborted === true ? abortedError(signal) : error;
  }
}
