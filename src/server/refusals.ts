import type { Clock, Log } from "../domain/index.ts";

/** Lines at once, and per second in the long run: the workload can make refused connections as fast as it likes. */
const BURST = 20;
const PER_SECOND = 2;

/** Logs connections that were refused or failed, at a bounded rate. */
export class RefusalLog {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #listener: string;
  #credit = BURST;
  #creditedAtMs: number;
  #suppressed = 0;

  constructor(log: Log, clock: Clock, listener: string) {
    this.#log = log;
    this.#clock = clock;
    this.#listener = listener;
    this.#creditedAtMs = clock.monotonicMs();
  }

  /** `reason` names what was wrong, never a secret. `suppressed` in a line counts those left out before it. */
  write(event: "connection_refused" | "connection_failed", peer: string, reason: string): void {
    const nowMs = this.#clock.monotonicMs();
    this.#credit = Math.min(BURST, this.#credit + ((nowMs - this.#creditedAtMs) / 1_000) * PER_SECOND);
    this.#creditedAtMs = nowMs;
    if (this.#credit < 1) {
      this.#suppressed++;
      return;
    }
    this.#credit--;
    const suppressed = this.#suppressed === 0 ? undefined : this.#suppressed;
    this.#suppressed = 0;
    this.#log.warn(event, { listener: this.#listener, peer, reason, suppressed });
  }
}
