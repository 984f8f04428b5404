/** Time limit of a whole copy. The limit of each of its calls is the remaining time. */
export class TimeLimit {
  readonly #endMs: number;

  constructor(timeoutMs: number | undefined) {
    this.#endMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + timeoutMs;
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
