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
import type { DutyTurns } from "./turns.ts";
import type { DegradedToken, RestoreReport, RestoreRequest } from "./report.ts";

/** The call that asks for the duties. */
export interface RestoreCall<Connection> {
  readonly arrival: Instant;
  /** Validity of the caller's certificate; undefined on a connection without TLS. */
  readonly validity: ValidityWindow | undefined;
  readonly connection: Connection;
  /** Aborted when the client is gone. Duties that have not begun then never begin. */
  readonly signal: AbortSignal;
}

/** What the duties renew beside randomness and clock. */
export interface RenewedParts<Connection> {
  /** `sweep` ends PRE_SNAPSHOT hooks that were running when the snapshot was taken. */
  readonly hooks: { sweep(): Promise<void> };
  /** `renew` reloads credential and spec files and puts them in force; `rearm` lifts its rate limits. */
  readonly rotation: { renew(cause: "restore" | "snapshot"): Promise<Renewal>; rearm(): void };
  /** Ends every connection but one, as clones of the guest share their keys. Returns how many. */
  readonly connections: { dropOtherConnections(keep: Connection): number };
  readonly freeze: { thawByDuties(end: DutiesEnd): DutiesThaw; readonly frozen: boolean };
  /** Runs ready_cmd at once; undefined: there is none. */
  readonly readiness: { runNow(): void } | undefined;
}

/** What the restore capability needs. */
export interface RestoreParts<Connection> {
  readonly kernel: Kernel;
  readonly randomness: ProcessRandomness;
  readonly clock: Clock;
  readonly stamps: Stamps;
  readonly activity: ActivityClock;
  readonly log: Log;
  readonly turns: DutyTurns;
  readonly renew: RenewedParts<Connection>;
}

/** The duties that make a restored guest differ from its clones. */
export class Restore<Connection> {
  readonly #parts: RestoreParts<Connection>;
  readonly #clockDuty: ClockDuty;
  #generation = 0;

  constructor(parts: RestoreParts<Connection>) {
    this.#parts = parts;
    this.#clockDuty = new ClockDuty(parts);
  }

  /** How often the duties have been performed. */
  get generation(): number {
    return this.#generation;
  }

  /** Counts duties as in progress from now on, as their call has arrived, until the returned function is called. */
  begin(): () => void {
    return this.#parts.turns.begin();
  }

  /**
   * Performs the duties, one caller at a time. Failed ones are in the report. Overwrites the entropy once it is used.
   *
   * @throws AgentError INVALID_ARGUMENT for entropy that is empty or over 64 KiB; then nothing has changed
   */
  async run(request: RestoreRequest, call: RestoreCall<Connection>): Promise<RestoreReport> {
    const end = this.begin();
    try {
      checkEntropy(request.entropy);
      return await this.#parts.turns.run(() => this.#perform(request, call), call.signal);
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
    await renew.hooks.sweep();
    // Before anything of the session can run.
    const { credentials, environment } = await renew.rotation.renew("restore");
    const droppedConnections = renew.connections.dropOtherConnections(call.connection);
    // Last of all that the session could notice: its first instruction finds new randomness and the right time.
    const thaw = renew.freeze.thawByDuties({ keep: request.keepFrozen === true, specRefused: !environment });
    renew.rotation.rearm();
    // In a session that is still frozen ready_cmd could not start, and its verdict would mean nothing.
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
  if (entropy.length === 0) throw invalidField("entropy", "is empty: give fresh bytes of the host's generator");
  if (entropy.length > ENTROPY_LIMIT_BYTES) {
    throw invalidField("entropy", `has ${entropy.length} bytes: at most ${ENTROPY_LIMIT_BYTES} are taken`);
  }
}
