import type { Clock } from "./ports/index.ts";

/** The earlier of the two: after a clock step, a stamp that lies in the future counts as now. */
function notAfter(stampNs: bigint, nowNs: bigint): bigint {
  return stampNs < nowNs ? stampNs : nowNs;
}

/**
 * The guest's own activity clock (HealthResponse.last_user_activity). Starts as the agent's start; what refreshes it is
 * decided by the callers (DESIGN §5).
 */
export class ActivityClock {
  readonly #clock: Clock;
  #lastNs: bigint;
  #attached = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lastNs = clock.wallNs();
  }

  /** User activity happens now. */
  touch(): void {
    this.#lastNs = this.#clock.wallNs();
  }

  /** Activity lasts from now until the returned function is called: for an exec without a terminal. */
  attach(): () => void {
    this.#attached += 1;
    let detached = false;
    return () => {
      if (detached) return;
      detached = true;
      this.#attached -= 1;
      this.touch();
    };
  }

  /** Time of the last activity, in nanoseconds since 1970; never in the future. */
  lastNs(): bigint {
    const nowNs = this.#clock.wallNs();
    return this.#attached > 0 ? nowNs : notAfter(this.#lastNs, nowNs);
  }
}

/** The workload's idle declarations (HealthResponse.idle_declared). */
export class IdleDeclarations {
  readonly #clock: Clock;
  #lastNs: bigint | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Records a declaration and returns its time, in nanoseconds since 1970. */
  declare(): bigint {
    this.#lastNs = this.#clock.wallNs();
    return this.#lastNs;
  }

  /** Time of the last declaration; undefined when there has been none. Never in the future. */
  lastNs(): bigint | undefined {
    return this.#lastNs === undefined ? undefined : notAfter(this.#lastNs, this.#clock.wallNs());
  }
}
