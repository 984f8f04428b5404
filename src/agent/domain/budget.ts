/** Rate limiter (token bucket): allows `burst` events at once and `perSecond` on average. */
export class Budget {
  readonly #burst: number;
  readonly #perSecond: number;
  #left: number;
  #refilledAtMs: number;

  /** @param nowMs time of a monotonic clock */
  constructor(burst: number, perSecond: number, nowMs: number) {
    this.#burst = burst;
    this.#perSecond = perSecond;
    this.#left = burst;
    this.#refilledAtMs = nowMs;
  }

  /** Counts an event of the given cost. Returns false, and counts nothing, if the event would exceed the budget. */
  spend(nowMs: number, cost = 1): boolean {
    const refill = ((nowMs - this.#refilledAtMs) / 1_000) * this.#perSecond;
    this.#left = Math.min(this.#burst, this.#left + refill);
    this.#refilledAtMs = nowMs;
    if (this.#left < cost) return false;
    this.#left -= cost;
    return true;
  }
}
