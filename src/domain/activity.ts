import type { Clock } from "./ports/system.ts";

/** Below what a reader of Health can see, and above what two clocks read one after the other differ by. */
const TOLERANCE_NS = 1_000_000n;

/** A moment of the guest's clock that is remembered, in nanoseconds since 1970. */
interface Stamp {
  ns: bigint;
}

/**
 * Keeps remembered moments true when the guest's clock is stepped. A step back moves all of them back with it, once, so
 * that their order and distance stay. A step forward leaves them: the guest was paused, and they are that much older.
 *
 * Whoever steps the clock, it is noticed at the next look: the wall clock and the monotonic one go at the same pace, so
 * only a step changes what lies between them.
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

  /** The guest's time, once all stamps have moved back with it if it was stepped back. */
  nowNs(): bigint {
    // In this order a pause between the two looks like a step forward at most, and the second reading tells that one.
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
   * Runs what may step the clock. Stamps of a clock that was not yet at `setSinceNs` (it had never been set) move forward
   * with it: they would otherwise be years old.
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

  /** A stamp of now, to be kept and set anew by its owner. */
  stamp(): Stamp {
    const stamp = { ns: this.nowNs() };
    this.#stamps.push(stamp);
    return stamp;
  }

  #move(byNs: bigint): void {
    for (const stamp of this.#stamps) stamp.ns += byNs;
  }

  #monotonicNs(): bigint {
    return BigInt(Math.round(this.#clock.monotonicMs() * 1e6));
  }
}

/** Activity that lasts: an exec without a terminal. Ends once, in one of two ways. */
export interface Attachment {
  /** It came to its own end, which is activity. */
  end(): void;
  /** It is being ended. It was activity until now; what had been attached before the restore duties, until these. */
  cut(): void;
}

/**
 * The guest's own activity clock (HealthResponse.last_user_activity). Starts as the agent's start; what refreshes it is
 * decided by the callers (DESIGN §5).
 */
export class ActivityClock {
  readonly #stamps: Stamps;
  readonly #last: Stamp;
  #attached = 0;
  #restores = 0;

  constructor(stamps: Stamps) {
    this.#stamps = stamps;
    this.#last = stamps.stamp();
  }

  /** User activity happens now. */
  touch(): void {
    this.#last.ns = this.#stamps.nowNs();
  }

  /** Activity lasts from now until the attachment's end. */
  attach(): Attachment {
    this.#attached += 1;
    const restores = this.#restores;
    let detached = false;
    const detach = (counts: boolean): void => {
      if (detached) return;
      detached = true;
      this.#attached -= 1;
      if (counts) this.touch();
    };
    return { end: () => detach(true), cut: () => detach(restores === this.#restores) };
  }

  /**
   * To be called when restore duties begin. What is attached was active until the snapshot, so until now by a clock that
   * has not been stepped; that the duties then end it is no activity.
   */
  restored(): void {
    if (this.#attached > 0) this.touch();
    this.#restores += 1;
  }

  /** Time of the last activity, in nanoseconds since 1970; never in the future. */
  lastNs(): bigint {
    // What was told once is not taken back when the attachment is cut.
    if (this.#attached > 0) this.touch();
    const nowNs = this.#stamps.nowNs();
    return atMost(this.#last.ns, nowNs);
  }
}

/** The workload's idle declarations (HealthResponse.idle_declared). */
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

  /** Time of the last declaration; undefined when there has been none. Never in the future. */
  lastNs(): bigint | undefined {
    const nowNs = this.#stamps.nowNs();
    return this.#last && atMost(this.#last.ns, nowNs);
  }
}

/** For steps that are too small to be told. */
function atMost(ns: bigint, limitNs: bigint): bigint {
  return ns < limitNs ? ns : limitNs;
}
