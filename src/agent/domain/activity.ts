import type { Clock } from "./ports/system.ts";

/** Clock steps up to this size are ignored. Clients of Health do not notice them, and clock readings jitter by less. */
const TOLERANCE_NS = 1_000_000n;

/** A recorded time of the guest's clock, in nanoseconds since 1970. */
export interface Stamp {
  ns: bigint;
}

/**
 * Corrects recorded times when any process steps the guest's clock:
 *
 * - After a backward step, all recorded times are moved back by the same amount, so their order and distances stay.
 * - After a forward step, they stay unchanged: the guest was paused, so the recorded activity really is that old.
 *
 * The next method call detects a step, because it changes the difference between wall clock and monotonic clock.
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

  /**
   * Returns the guest's time. If the clock was stepped back since the last call, first moves all stamps back by the
   * same amount.
   */
  nowNs(): bigint {
    // The agent may be preempted between reading the monotonic clock and the wall clock. In this order, the delay looks
    // like a forward step, never like a backward step. So after an apparent forward step, the monotonic clock is read
    // again. This reading shows whether there really was a step.
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
   * Runs `step`, which may set the guest's clock. If the clock has shown a time before `setSinceNs` so far, nobody has
   * ever set it, so all stamps are wrong by as much as the clock. When `step` moves the clock forward, all stamps are
   * then moved forward by the same amount.
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

  /** Creates a stamp of the current time. To update the stamp later, the caller sets its `ns`. */
  stamp(): Stamp {
    const stamp = { ns: this.nowNs() };
    this.#stamps.push(stamp);
    return stamp;
  }

  /**
   * Returns the time of a stamp. If the stamp is later than the current time, returns the current time. This happens
   * after a backward step of less than TOLERANCE_NS, which does not move the stamps.
   */
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

/** A user activity that lasts, such as a command without a terminal. At its end, call either `end` or `cut`, once. */
export interface Attachment {
  /** Call it if the activity ended by itself. Records the present time as the time of the last user activity. */
  end(): void;
  /**
   * Call it if the agent ends the activity. Records the present time, like `end`, but only if no restore has happened
   * since `attach`.
   */
  cut(): void;
}

/** Time of the last user activity (HealthResponse), initially the agent's start. The caller decides what counts. */
export class ActivityClock {
  readonly #stamps: Stamps;
  readonly #last: Stamp;
  #attached = 0;
  /** Number of attachments that began after the last restore and have not ended. */
  #attachedSinceRestore = 0;
  #restores = 0;

  constructor(stamps: Stamps) {
    this.#stamps = stamps;
    this.#last = stamps.stamp();
  }

  /**
   * Records user activity now. Does nothing during an attachment, because an attachment counts as activity anyway. So
   * the clocks are not read for each frame of an attached call, which would make each frame a tenth slower.
   */
  touch(): void {
    if (this.#attachedSinceRestore === 0) this.#touchNow();
  }

  /** Begins an attachment, which counts as user activity until it ends. */
  attach(): Attachment {
    this.#attached += 1;
    this.#attachedSinceRestore += 1;
    const restores = this.#restores;
    let detached = false;
    const detach = (counts: boolean): void => {
      if (detached) return;
      detached = true;
      this.#attached -= 1;
      if (restores === this.#restores) this.#attachedSinceRestore -= 1;
      if (counts) this.#touchNow();
    };
    return { end: () => detach(true), cut: () => detach(restores === this.#restores) };
  }

  /**
   * Call it when the restore steps begin, before they set the clock. The clock then still shows the time of the
   * snapshot. If any call is attached, this time becomes the time of the last user activity. The restore steps later
   * end the attached calls, which does not count as user activity.
   */
  restored(): void {
    if (this.#attached > 0) this.#touchNow();
    this.#restores += 1;
    this.#attachedSinceRestore = 0;
  }

  /** Time of the last activity in nanoseconds since 1970, never in the future. */
  lastNs(): bigint {
    // Records the time that this call returns, because `cut` records nothing for an attachment that began before the
    // last restore. Without this record, a later call could return an earlier time.
    if (this.#attached > 0) this.#touchNow();
    return this.#stamps.timeOf(this.#last);
  }

  #touchNow(): void {
    this.#last.ns = this.#stamps.nowNs();
  }
}
