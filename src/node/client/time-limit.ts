import { limitOf } from "./arguments.ts";
import { deferred } from "./deferred.ts";
import { abortedError, type GuestError } from "./errors/errors.ts";

/**
 * The longest delay that Node's timers accept; with a longer delay they fire at once. So a time limit of more than 24
 * days is not enforced.
 */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Time limit of an operation that makes several calls. The limit of each call is the remaining time. */
export class TimeLimit {
  /** Time at which the limit expires, as a value of performance.now(). Infinity if there is no limit. */
  readonly endMs: number;

  /** Throws GuestError (INVALID_ARGUMENT) for an invalid limit. */
  constructor(requestTimeoutMs: number | undefined) {
    const limitMs = limitOf(requestTimeoutMs, "requestTimeoutMs") ?? Number.POSITIVE_INFINITY;
    this.endMs = performance.now() + limitMs;
  }

  get isOver(): boolean {
    return performance.now() >= this.endMs;
  }

  /** The remaining time, at most `mostMs`; undefined if there is no limit. */
  left(mostMs: number = Number.POSITIVE_INFINITY): number | undefined {
    const leftMs = Math.min(mostMs, Math.max(0, this.endMs - performance.now()));
    return leftMs === Number.POSITIVE_INFINITY ? undefined : leftMs;
  }

  /**
   * Resolves or rejects as `promise` does. But if the time limit expires first, rejects with the error that `late`
   * creates, and if the signal is aborted first, rejects with GuestError. The later result of the promise is then
   * ignored.
   */
  async within<Value>(promise: Promise<Value>, late: () => GuestError, signal?: AbortSignal): Promise<Value> {
    const { promise: over, reject } = deferred<never>();
    const timer = this.timer(() => reject(late()));
    const onAbort = (): void => {
      if (signal !== undefined) reject(abortedError(signal));
    };
    signal?.addEventListener("abort", onAbort);
    // Reject `over` if the signal is already aborted. If `promise` has already settled, it still wins the race below,
    // because it is the first in the list.
    if (signal?.aborted === true) onAbort();
    try {
      return await Promise.race([promise, over]);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Starts a timer that calls `onOver` when the time limit expires. Returns undefined if there is no limit. */
  timer(onOver: () => void): NodeJS.Timeout | undefined {
    const leftMs = this.left();
    return leftMs === undefined || leftMs > LONGEST_TIMER_MS ? undefined : setTimeout(onOver, leftMs);
  }
}
