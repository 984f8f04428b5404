import type { Clock, Instant, Kernel, Stamps } from "../domain/index.ts";
import type { DegradedToken, RestoreReport } from "./report.ts";

const NS_PER_MS = 1_000_000;
/** A host time that is at most this much older than the last applied one belongs to a delayed or repeated call. */
const STALE_NS = 60_000_000_000n;

/** Validity of the caller's certificate, in milliseconds since 1970. */
export interface ValidityWindow {
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

type ClockResult = Pick<RestoreReport, "clockDriftMs" | "clockStepped" | "degraded">;

/**
 * The beginning of 2020. A clock that shows an earlier time was never set, even if the caller's certificate is valid at
 * this time.
 */
const EARLIEST_SET_NS = 1_577_836_800_000_000_000n;

export interface ClockDutyParts {
  readonly kernel: Kernel;
  readonly clock: Clock;
  readonly stamps: Stamps;
}

export class ClockDuty {
  readonly #parts: ClockDutyParts;
  /** The host time that was applied last. */
  #appliedNs: bigint | undefined;

  constructor(parts: ClockDutyParts) {
    this.#parts = parts;
  }

  /**
   * Steps the clock to the host time plus the time since the call arrived, however small the drift is. Does not step
   * the clock, and reports why, in two cases:
   *
   * - The host time is at most a minute older than the one applied last: such a call was delayed or repeated. An even
   *   older host time is applied, because it corrects a clock that was set wrong.
   * - The host time is outside of the validity of the caller's certificate. Otherwise a caller could make its expired
   *   certificate valid again.
   */
  run(hostTimeNs: bigint | undefined, arrival: Instant, validity: ValidityWindow | undefined): ClockResult {
    if (hostTimeNs === undefined) return { clockDriftMs: 0n, clockStepped: false, degraded: [] };
    const clockDriftMs = (arrival.wallNs - hostTimeNs) / BigInt(NS_PER_MS);
    const problem = this.#step(hostTimeNs, arrival, validity);
    return { clockDriftMs, clockStepped: problem === undefined, degraded: problem === undefined ? [] : [problem] };
  }

  #step(hostTimeNs: bigint, arrival: Instant, validity: ValidityWindow | undefined): DegradedToken | undefined {
    if (validity !== undefined && !isWithin(hostTimeNs, validity)) return "clock_outside_cert";
    if (this.#appliedNs !== undefined && isStale(hostTimeNs, this.#appliedNs)) return "clock_stale";
    const { kernel, clock, stamps } = this.#parts;
    const errno = stamps.whileStepping(() => {
      const elapsedNs = BigInt(Math.round((clock.monotonicMs() - arrival.monotonicMs) * NS_PER_MS));
      return kernel.stepClock(hostTimeNs + elapsedNs);
    }, setSince(validity));
    if (errno !== undefined) return `clock_set:${errno}`;
    this.#appliedNs = hostTimeNs;
    return undefined;
  }
}

/** Returns the earliest time that the clock can show once it was set. */
function setSince(validity: ValidityWindow | undefined): bigint {
  const notBeforeNs = BigInt(validity?.notBeforeMs ?? 0) * BigInt(NS_PER_MS);
  return notBeforeNs > EARLIEST_SET_NS ? notBeforeNs : EARLIEST_SET_NS;
}

function isStale(timeNs: bigint, appliedNs: bigint): boolean {
  return timeNs <= appliedNs && appliedNs - timeNs <= STALE_NS;
}

function isWithin(timeNs: bigint, { notBeforeMs, notAfterMs }: ValidityWindow): boolean {
  const timeMs = timeNs / BigInt(NS_PER_MS);
  return timeMs >= BigInt(notBeforeMs) && timeMs < BigInt(notAfterMs);
}
