/** The time limit of a whole copy, of which each of its calls gets what is left. */
export class TimeLimit {
  readonly #endMs: number;

  constructor(timeoutMs: number | undefined) {
    this.#endMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + timeoutMs;
  }

  get isOver(): boolean {
    return performance.now() >= this.#endMs;
  }

  /** What is left, at most so much; undefined: no limit. */
  left(mostMs: number = Number.POSITIVE_INFINITY): number | undefined {
    const leftMs = Math.min(mostMs, Math.max(0, this.#endMs - performance.now()));
    return leftMs === Number.POSITIVE_INFINITY ? undefined : leftMs;
  }
}
