import {
  type ActivityClock,
  type Clock,
  ENTROPY_LIMIT_BYTES,
  type Instant,
  invalidField,
  type Kernel,
  type Log,
  type ProcessRandomness,
  type Stamps,
} from "../domain/index.ts";
import type { DutiesEnd, DutiesThaw } from "../session/index.ts";
import { ClockDuty, type ValidityWindow } from "./clock-duty.ts";
import type { Renewal } from "./credential-rotation.ts";
import { renewRandomness } from "./entropy-duty.ts";
import type { DutyQueue } from "./duty-queue.ts";
import type { DegradedToken, RestoreReport, RestoreRequest } from "./report.ts";

/** What the agent knows about a RunRestoreDuties call in addition to its request (RestoreRequest). */
export interface RestoreCall<Connection> {
  readonly arrival: Instant;
  /** Validity of the caller's certificate; undefined without TLS. */
  readonly validity: ValidityWindow | undefined;
  readonly connection: Connection;
  /** This signal is aborted when the client disconnects. Restore steps that have not begun by then are not run. */
  readonly signal: AbortSignal;
}

/** What the restore steps renew in addition to randomness and clock. */
export interface RenewedParts<Connection> {
  /** Kills PRE_SNAPSHOT hooks that were running when the snapshot was taken. */
  readonly hooks: { killStaleHook(): Promise<void> };
  /**
   * - `renew` reloads the credential and spec files and begins to use them.
   * - `resetRateLimits` cancels the current waiting times: the files may then be checked and reloaded at once.
   */
  readonly rotation: { renew(cause: "restore" | "snapshot"): Promise<Renewal>; resetRateLimits(): void };
  /**
   * Ends all connections except `keep`, because clones of the guest share the keys of these connections. Returns the
   * number of ended connections.
   */
  readonly connections: { dropOtherConnections(keep: Connection): number };
  readonly freeze: { thawByDuties(end: DutiesEnd): DutiesThaw; readonly frozen: boolean };
  /** Runs ready_cmd now. Undefined if there is no ready_cmd. */
  readonly readiness: { runNow(): void } | undefined;
}

export interface RestoreParts<Connection> {
  readonly kernel: Kernel;
  readonly randomness: ProcessRandomness;
  readonly clock: Clock;
  readonly stamps: Stamps;
  readonly activity: ActivityClock;
  readonly log: Log;
  readonly dutyQueue: DutyQueue;
  readonly renew: RenewedParts<Connection>;
}

/** The restore steps. After them, a guest no longer shares random state, time and connections with other clones. */
export class Restore<Connection> {
  readonly #parts: RestoreParts<Connection>;
  readonly #clockDuty: ClockDuty;
  #generation = 0;

  constructor(parts: RestoreParts<Connection>) {
    this.#parts = parts;
    this.#clockDuty = new ClockDuty(parts);
  }

  /** Number of times that the restore steps have run. */
  get generation(): number {
    return this.#generation;
  }

  /**
   * Records that a RunRestoreDuties call has arrived. Its restore steps count as running until the returned function is
   * called.
   */
  begin(): () => void {
    return this.#parts.dutyQueue.begin();
  }

  /**
   * Runs the restore steps, one call at a time. Failures are in the report. Overwrites the entropy after use.
   *
   * @throws AgentError INVALID_ARGUMENT for entropy that is empty or over 64 KiB, before anything is changed
   */
  async run(request: RestoreRequest, call: RestoreCall<Connection>): Promise<RestoreReport> {
    const end = this.begin();
    try {
      checkEntropy(request.entropy);
      return await this.#parts.dutyQueue.run(() => this.#perform(request, call), call.signal);
    } finally {
      end();
    }
  }

  async #perform(request: RestoreRequest, call: RestoreCall<Connection>): Promise<RestoreReport> {
    const { kernel, randomness, activity, renew, log } = this.#parts;
    this.#generation += 1;
    const entropy = renewRandomness(request.entropy, kernel, randomness);
    request.entropy.fill(0);
    activity.restored();
    const clock = this.#clockDuty.run(request.hostTimeNs, call.arrival, call.validity);
    await renew.hooks.killStaleHook();
    // The files are reloaded before the thaw, so that no process of the session can run with old credentials.
    const { credentials, environment } = await renew.rotation.renew("restore");
    const droppedConnections = renew.connections.dropOtherConnections(call.connection);
    // The session is thawed after all steps whose effects its processes could see. So these processes have new random
    // numbers and the right time from their first instruction on.
    const thaw = renew.freeze.thawByDuties({ keep: request.keepFrozen === true, specRefused: !environment });
    renew.rotation.resetRateLimits();
    // While the session stays frozen, ready_cmd does not run, because no command can start.
    if (!renew.freeze.frozen) renew.readiness?.runNow();
    const refused: DegradedToken[] = [];
    if (!credentials) refused.push("credentials_reload:refused");
    if (!environment) refused.push("process_env:refused");
    const report = { ...entropy, ...clock, ...thaw, degraded: [...entropy.degraded, ...clock.degraded, ...refused] };
    log[report.degraded.length === 0 ? "info" : "warn"]("restore_duties_done", {
      entropy_bytes_mixed: report.entropyBytesMixed,
      entropy_credited: report.entropyCredited,
      clock_drift_ms: Number(report.clockDriftMs),
      clock_stepped: report.clockStepped,
      degraded: report.degraded.join(";"),
      dropped_connections: droppedConnections,
      frozen: report.frozen,
      thawed_without_duties: report.thawedWithoutDuties,
    });
    return report;
  }
}

function checkEntropy(entropy: Uint8Array): void {
  if (entropy.length === 0) throw invalidField("entropy", "is empty: send fresh random bytes from the host");
  if (entropy.length > ENTROPY_LIMIT_BYTES) {
    throw invalidField("entropy", `has ${entropy.length} bytes, but the maximum is ${ENTROPY_LIMIT_BYTES}`);
  }
}
