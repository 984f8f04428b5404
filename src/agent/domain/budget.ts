/** Allows `burst` events at once and `perSecond` a second in the long run. */
export class Budget {
  readonly #burst: number;
  readonly #perSecond: number;
  #left: number;
  #refilledAtMs: number;

  /** @param nowMs of a clock that is never stepped */
  constructor(burst: number, perSecond: number, nowMs: number) {
    this.#burst = burst;
    this.#perSecond = perSecond;
    this.#left = burst;
    this.#refilledAtMs = nowMs;
  }

  /** Counts an event, or one as costly as several. False: it exceeds the budget, and is not counted. */
  spend(nowMs: number, cost = 1): boolean {
    const refill = ((nowMs - this.#refilledAtMs) / 1_000) * this.#perSecond;
    this.#left = Math.min(this.#burst, this.#left + refill);
    this.#refilledAtMs = nowMs;
    if (this.#left < cost) return false;
    this.#left -= cost;
    return true;
  }
}
