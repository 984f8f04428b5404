import type { Stamp, Stamps } from "../domain/index.ts";

/** The workload's declarations that it is idle (HealthResponse.idle_declared). */
export class IdleDeclarations {
  readonly #stamps: Stamps;
  #last: Stamp | undefined;

  constructor(stamps: Stamps) {
    this.#stamps = stamps;
  }

  /** Records a declaration and returns its time, in nanoseconds since 1970. */
  declare(): bigint {
    this.#last ??= this.#stamps.stamp();
    return (this.#last.ns = this.#stamps.nowNs());
  }

  /** Time of the last declaration; undefined if there was none. Never in the future. */
  lastNs(): bigint | undefined {
    return this.#last && this.#stamps.timeOf(this.#last);
  }
}
