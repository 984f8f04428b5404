import { limitOf } from "../arguments.ts";

/** Time limit of a whole copy. The limit of each of its calls is the remaining time. */
export class TimeLimit {
  readonly #endMs: number;

  /** Throws GuestError (INVALID_ARGUMENT) for an invalid limit. */
  constructor(requestTimeoutMs: number | undefined) {
    const limitMs = limitOf(requestTimeoutMs, "requestTimeoutMs") ?? Number.POSITIVE_INFINITY;
    this.#endMs = performance.now() + limitMs;
  }

  get isOver(): boolean {
    return performance.now() >= this.#endMs;
  }

  /** The remaining time, at most `mostMs`; undefined if there is no limit. */
  left(mostMs: number = Number.POSITIVE_INFINITY): number | undefined {
    const leftMs = Math.min(mostMs, Math.max(0, this.#endMs - performance.now()));
    return leftMs === Number.POSITIVE_INFINITY ? undefined : leftMs;
  }
}
