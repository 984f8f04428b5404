import {
  type ActivityClock,
  type Clock,
  ENTROPY_LIMIT_BYTES,
  type Instant,
  invalidField,
  type Kernel,
  type Log,
  Mutex,
  type ProcessRandomness,
  type Stamps,
  unlessAborted,
} from "../domain/index.ts";
import type { DutiesEnd, DutiesThaw } from "../session/index.ts";
import { ClockDuty, type ValidityWindow } from "./clock-duty.ts";
import type { Renewal } from "./credential-rotation.ts";
import { renewRandomness } from "./entropy-duty.ts";
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

/** The other duties, beside randomness and clock, in their order. */
export interface RenewedParts<Connection> {
  /** Ends PRE_SNAPSHOT hooks that were running when the snapshot was taken. */
  readonly sweepHooks: () => Promise<void>;
  /** Reloads credential and spec files and puts them in force, before anything of the session can run. */
  readonly renewFiles: (cause: "restore" | "snapshot") => Promise<Renewal>;
  /** Ends every connection but one, as clones of the guest share their keys. Returns how many. */
  readonly dropOtherConnections: (keep: Connection) => number;
  /** Thaws the session if it was frozen for the snapshot, unless it must stay frozen. Reports how the freeze stands. */
  readonly thaw: (end: DutiesEnd) => DutiesThaw;
  /** Restarts what waits for a timer: ready_cmd runs at once. */
  readonly rearmTimers: () => void;
}

/** What the restore capability needs. */
export interface RestoreParts<Connection> {
  readonly kernel: Kernel;
  readonly randomness: ProcessRandomness;
  readonly clock: Clock;
  readonly stamps: Stamps;
  readonly activity: ActivityClock;
  readonly log: Log;
  readonly renew: RenewedParts<Connection>;
}

/** The duties that make a restored guest differ from its clones. */
export class Restore<Connection> {
  readonly #parts: RestoreParts<Connection>;
  readonly #clockDuty: ClockDuty;
  readonly #mutex = new Mutex();
  readonly #inProgress = new Set<Promise<void>>();
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
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    this.#inProgress.add(ended);
    return () => {
      this.#inProgress.delete(ended);
      resolve();
    };
  }

  /** Resolves when no duties are in progress or waiting for their turn. Rejects with the signal's reason. */
  async settled(signal: AbortSignal): Promise<void> {
    while (this.#inProgress.size > 0) await unlessAborted(Promise.all(this.#inProgress), signal);
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
      return await this.#mutex.run(() => this.#perform(request, call), call.signal);
    } finally {
      end();
    }
  }

  /** Runs a task while no duties run. Rejects with the signal's reason if it is aborted before the task's turn. */
  exclusively<Result>(task: () => Promise<Result>, signal: AbortSignal): Promise<Result> {
    return this.#mutex.run(task, signal);
  }

  async #perform(request: RestoreRequest, call: RestoreCall<Connection>): Promise<RestoreReport> {
    const { kernel, randomness, activity, renew, log } = this.#parts;
    this.#generation += 1;
    const entropy = renewRandomness(request.entropy, kernel, randomness);
    request.entropy.fill(0);
    activity.restored();
    const clock = this.#clockDuty.run(request.hostTimeNs, call.arrival, call.validity);
    await renew.sweepHooks();
    const { credentials, environment } = await renew.renewFiles("restore");
    const droppedConnections = renew.dropOtherConnections(call.connection);
    // Last of all that the session could notice: its first instruction finds new randomness and the right time.
    const thaw = renew.thaw({ keep: request.keepFrozen === true, specRefused: !environment });
    renew.rearmTimers();
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
