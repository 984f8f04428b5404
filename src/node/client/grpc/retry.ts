import { setTimeout as pause } from "node:timers/promises";
import { messageOf } from "../../../shared/errors.ts";
import { abortedError } from "../errors/errors.ts";
import { publish } from "./tracing.ts";

/** Pause before the second attempt. Each further pause is twice as long as the one before. */
const FIRST_PAUSE_MS = 50;

/** Decides how often, how long and after which results to retry. */
interface Retries<Value> {
  /** The pauses between attempts. With n pauses there are at most n + 1 attempts. */
  readonly pausesMs: Iterable<number>;
  /** No further attempt begins after this time, which is a value of performance.now(). */
  readonly untilMs: number;
  /** Whether another attempt may succeed after this error. */
  readonly isTransient: (error: unknown) => boolean;
  /** Whether the value of an attempt is good enough to stop. Default: every value is. */
  readonly isEnough?: (value: Value) => boolean;
  /** When this signal is aborted, the pause ends, and no further attempt begins. */
  readonly signal: AbortSignal | undefined;
  /** The address or bridge program of the client, as the event of a retry reports it. */
  readonly target?: string | undefined;
}

/**
 * Retries until `isEnough` accepts the value of an attempt, an attempt fails with a permanent error, or no time is
 * left. Settles with the result of the last attempt. Rejects with GuestError if the signal is aborted.
 *
 * @param first an attempt that has already begun
 */
export async function retried<Value>(
  first: Promise<Value>,
  again: () => Promise<Value>,
  { pausesMs, untilMs, isTransient, isEnough = () => true, signal, target }: Retries<Value>,
): Promise<Value> {
  let attempt = first;
  for (const pauseMs of pausesMs) {
    const isLast = (): boolean => performance.now() + pauseMs >= untilMs;
    try {
      const value = await attempt;
      if (isEnough(value) || isLast()) return value;
    } catch (error) {
      if (!isTransient(error) || isLast()) throw error;
      publish({ event: "retrying", ...(target !== undefined && { target }), pauseMs, reason: messageOf(error) });
    }
    await pauseFor(pauseMs, signal);
    attempt = again();
  }
  return attempt;
}

/** An endless sequence of pauses, each twice as long as the one before, up to a limit. */
export function* growingPauses(longestMs: number): Generator<number, never> {
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, longestMs)) yield pauseMs;
}

/** Rejects with GuestError once the signal is aborted. */
async function pauseFor(pauseMs: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await pause(pauseMs, undefined, signal && { signal });
  } catch (error) {
    throw signal?.aborted === true ? abortedError(signal) : error;
  }
}
