import type { Clock, DegradedToken, Kernel } from "../domain/index.ts";

const NS_PER_MS = 1_000_000;

/** Both clocks at the moment when the call arrived. */
export interface Arrival {
  readonly wallNs: bigint;
  readonly monotonicMs: number;
}

/** From when to when the caller's certificate is valid, in milliseconds since 1970. */
export interface ValidityWindow {
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/** What became of the clock. */
export interface ClockResult {
  readonly clockDriftMs: bigint;
  readonly clockStepped: boolean;
  readonly degraded: readonly DegradedToken[];
}

/** Steps the guest clock to the host's time. */
export class ClockDuty {
  readonly #kernel: Kernel;
  readonly #clock: Clock;
  /** The last host time that was applied. */
  #appliedNs: bigint | undefined;

  constructor(kernel: Kernel, clock: Clock) {
    this.#kernel = kernel;
    this.#clock = clock;
  }

  /**
   * Steps whatever the drift, plus the time that has passed since the call arrived. Leaves the clock alone, and says so,
   * when the host time is not newer than the last one applied (a repeated call must not put time back), or lies outside
   * the caller's own certificate (a caller must not be able to prolong it).
   */
  run(hostTimeNs: bigint | undefined, arrival: Arrival, validity: ValidityWindow | undefined): ClockResult {
    if (hostTimeNs === undefined) return { clockDriftMs: 0n, clockStepped: false, degraded: [] };
    const clockDriftMs = (arrival.wallNs - hostTimeNs) / BigInt(NS_PER_MS);
    const problem = this.#step(hostTimeNs, arrival, validity);
    return { clockDriftMs, clockStepped: problem === undefined, degraded: problem === undefined ? [] : [problem] };
  }

  #step(hostTimeNs: bigint, arrival: Arrival, validity: ValidityWindow | undefined): DegradedToken | undefined {
    if (validity !== undefined && !isWithin(hostTimeNs, validity)) return "clock_outside_cert";
    if (this.#appliedNs !== undefined && hostTimeNs <= this.#appliedNs) return "clock_stale";
    const elapsedNs = BigInt(Math.round((this.#clock.monotonicMs() - arrival.monotonicMs) * NS_PER_MS));
    const errno = this.#kernel.stepClock(hostTimeNs + elapsedNs);
    if (errno !== undefined) return `clock_set:${errno}`;
    this.#appliedNs = hostTimeNs;
    return undefined;
  }
}

function isWithin(timeNs: bigint, { notBeforeMs, notAfterMs }: ValidityWindow): boolean {
  const timeMs = timeNs / BigInt(NS_PER_MS);
  return timeMs >= BigInt(notBeforeMs) && timeMs < BigInt(notAfterMs);
}
