import type { Clock, Instant, Kernel, Stamps } from "../domain/index.ts";
import type { DegradedToken, RestoreReport } from "./report.ts";

const NS_PER_MS = 1_000_000;
/** A host time that is older than the last applied one by at most this comes from a delayed or repeated call. */
const STALE_NS = 60_000_000_000n;

/** From when to when the caller's certificate is valid, in milliseconds since 1970. */
export interface ValidityWindow {
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/** Result of the clock's duty. */
type ClockResult = Pick<RestoreReport, "clockDriftMs" | "clockStepped" | "degraded">;

/** 2020: a clock before it has never been set, whatever the caller's certificate says. */
const SURELY_SET_NS = 1_577_836_800_000_000_000n;

/** What the clock's duty needs. */
export interface ClockDutyParts {
  readonly kernel: Kernel;
  readonly clock: Clock;
  readonly stamps: Stamps;
}

/** Steps the guest clock to the host's time. */
export class ClockDuty {
  readonly #parts: ClockDutyParts;
  /** The last host time that was applied. */
  #appliedNs: bigint | undefined;

  constructor(parts: ClockDutyParts) {
    this.#parts = parts;
  }

  /**
   * Steps the clock to the host time plus the time since the call arrived, however small the drift. Leaves the clock
   * alone, and says so, in two cases. The host time is up to a minute older than the last applied one: a delayed or
   * repeated call must not turn time back. (A still older time corrects a wrong one.) Or the host time lies outside the
   * validity of the caller's certificate, which a caller must not be able to prolong.
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

/** The time before which the clock had never been set. */
function setSince(validity: ValidityWindow | undefined): bigint {
  const notBeforeNs = BigInt(validity?.notBeforeMs ?? 0) * BigInt(NS_PER_MS);
  return notBeforeNs > SURELY_SET_NS ? notBeforeNs : SURELY_SET_NS;
}

function isStale(timeNs: bigint, appliedNs: bigint): boolean {
  return timeNs <= appliedNs && appliedNs - timeNs <= STALE_NS;
}

function isWithin(timeNs: bigint, { notBeforeMs, notAfterMs }: ValidityWindow): boolean {
  const timeMs = timeNs / BigInt(NS_PER_MS);
  return timeMs >= BigInt(notBeforeMs) && timeMs < BigInt(notAfterMs);
}
