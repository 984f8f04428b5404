import type { Clock } from "./ports/system.ts";

/** Too small for a reader of Health to notice, but larger than the difference of two consecutive clock readings. */
const TOLERANCE_NS = 1_000_000n;

/** A remembered time of the guest's clock, in nanoseconds since 1970. */
export interface Stamp {
  ns: bigint;
}

/**
 * Corrects remembered times when the guest's clock is stepped. A step back moves all of them back by the same amount,
 * once, so that their order and distances stay. A step forward leaves them: the guest was paused, and they really are
 * older.
 *
 * Notices a step by anybody at its next call. The wall clock and the monotonic one run at the same rate, so only a step
 * changes their difference.
 */
export class Stamps {
  readonly #clock: Clock;
  readonly #stamps: Stamp[] = [];
  /** Wall clock minus monotonic clock. */
  #offsetNs: bigint;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#offsetNs = clock.wallNs() - this.#monotonicNs();
  }

  /** The guest's time. If it was stepped back, all stamps have moved back with it. */
  nowNs(): bigint {
    // Read in this order: a pause between the two readings then looks like a step forward, which a second reading
    // disproves.
    const monotonicNs = this.#monotonicNs();
    const nowNs = this.#clock.wallNs();
    const changeNs = nowNs - monotonicNs - this.#offsetNs;
    if (changeNs < -TOLERANCE_NS) {
      this.#offsetNs += changeNs;
      this.#move(changeNs);
    } else if (changeNs > TOLERANCE_NS) {
      const leastNs = nowNs - this.#monotonicNs() - this.#offsetNs;
      if (leastNs > TOLERANCE_NS) this.#offsetNs += leastNs;
    }
    return nowNs;
  }

  /**
   * Runs `step`, which may step the clock. If the clock was before `setSinceNs`, and so never set, the stamps move
   * along.
   */
  whileStepping<Result>(step: () => Result, setSinceNs?: bigint): Result {
    const beforeNs = this.nowNs();
    const offsetNs = this.#offsetNs;
    const result = step();
    this.nowNs();
    const forwardNs = this.#offsetNs - offsetNs;
    if (setSinceNs !== undefined && beforeNs < setSinceNs && forwardNs > 0n) this.#move(forwardNs);
    return result;
  }

  /** A new stamp of the current time. Its owner keeps and updates it. */
  stamp(): Stamp {
    const stamp = { ns: this.nowNs() };
    this.#stamps.push(stamp);
    return stamp;
  }

  /** A stamp's time, never in the future: hides steps below TOLERANCE_NS. */
  timeOf(stamp: Stamp): bigint {
    const nowNs = this.nowNs();
    return stamp.ns < nowNs ? stamp.ns : nowNs;
  }

  #move(byNs: bigint): void {
    for (const stamp of this.#stamps) stamp.ns += byNs;
  }

  #monotonicNs(): bigint {
    return BigInt(Math.round(this.#clock.monotonicMs() * 1e6));
  }
}

/** Activity that lasts, as an exec without a terminal does. Ends once, in one of two ways. */
export interface Attachment {
  /** It ended by itself, which counts as activity. */
  end(): void;
  /** The agent ends it. It was activity until now, or until the restore duties if it had begun before them. */
  cut(): void;
}

/** Time of the last user activity (HealthResponse); at first the agent's start. Callers decide what is activity. */
export class ActivityClock {
  readonly #stamps: Stamps;
  readonly #last: Stamp;
  #attached = 0;
  /** Those of them that began after the last restore: the end of each is activity. */
  #lasting = 0;
  #restores = 0;

  constructor(stamps: Stamps) {
    this.#stamps = stamps;
    this.#last = stamps.stamp();
  }

  /** Records user activity now. Does nothing while something lasts: reading clocks would cost a tenth of a frame. */
  touch(): void {
    if (this.#lasting === 0) this.#touchNow();
  }

  /** Activity lasts from now until the attachment's end. */
  attach(): Attachment {
    this.#attached += 1;
    this.#lasting += 1;
    const restores = this.#restores;
    let detached = false;
    const detach = (counts: boolean): void => {
      if (detached) return;
      detached = true;
      this.#attached -= 1;
      if (restores === this.#restores) this.#lasting -= 1;
      if (counts) this.#touchNow();
    };
    return { end: () => detach(true), cut: () => detach(restores === this.#restores) };
  }

  /**
   * Call it when restore duties begin, before they step the clock. Attached calls were active until the snapshot, which
   * is now by this clock. The duties then end them, which is no activity.
   */
  restored(): void {
    if (this.#attached > 0) this.#touchNow();
    this.#restores += 1;
    this.#lasting = 0;
  }

  /** Time of the last activity, in nanoseconds since 1970; never in the future. */
  lastNs(): bigint {
    // Recorded, so that a later `cut` does not move the reported time back.
    if (this.#attached > 0) this.#touchNow();
    return this.#stamps.timeOf(this.#last);
  }

  #touchNow(): void {
    this.#last.ns = this.#stamps.nowNs();
  }
}
