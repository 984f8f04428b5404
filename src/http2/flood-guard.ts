import type { Http2Limits } from "./limits.ts";
import type { Output } from "./output.ts";
import { calmError } from "./protocol.ts";

/** Allows so many events at once and so many a second in the long run. */
class Budget {
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

/** Bounds what a peer may have done for nothing. Each method throws ConnectionError at what is too much. */
export class FloodGuard {
  readonly #limits: Http2Limits;
  readonly #nowMs: () => number;
  readonly #resets: Budget;
  readonly #idleFrames: Budget;
  /** SETTINGS and PINGs whose answers were not taken, and whose answers were, but are not written. */
  #queued = 0;
  #unwritten = 0;

  constructor(limits: Http2Limits, nowMs: () => number) {
    this.#limits = limits;
    this.#nowMs = nowMs;
    this.#resets = new Budget(limits.resets, limits.resetsPerSecond, nowMs());
    this.#idleFrames = new Budget(limits.idleFrames, limits.idleFramesPerSecond, nowMs());
  }

  /** Counts a request that was broken off, by whomever. */
  reset(): void {
    if (!this.#resets.spend(this.#nowMs())) throw calmError("too many requests that were broken off");
  }

  /** Counts a frame that carries nothing. */
  idleFrame(what: string): void {
    if (!this.#idleFrames.spend(this.#nowMs())) throw calmError(`too many ${what}`);
  }

  /** Counts a frame that is to be answered. */
  answer(): void {
    this.#queued++;
    this.#unwritten++;
    if (this.#unwritten > this.#limits.unwrittenAnswers) throw calmError("SETTINGS and PINGs without a pause");
  }

  /** All answers so far are taken: from when the output is written they do not count any more. */
  taken(output: Output): void {
    const answers = this.#queued;
    if (answers === 0) return;
    this.#queued = 0;
    output.whenWritten(() => {
      this.#unwritten -= answers;
    });
  }
}
