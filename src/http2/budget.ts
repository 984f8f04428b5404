/** Allows so many events at once and so many a second in the long run. */
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

  /** Counts an event. False: it is one too many. */
  spend(nowMs: number): boolean {
    const refill = ((nowMs - this.#refilledAtMs) / 1_000) * this.#perSecond;
    this.#left = Math.min(this.#burst, this.#left + refill) - 1;
    this.#refilledAtMs = nowMs;
    return this.#left >= 0;
  }
}
