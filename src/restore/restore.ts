import {
  type ActivityClock,
  type Clock,
  ENTROPY_LIMIT_BYTES,
  invalidField,
  type Kernel,
  type Log,
  Mutex,
  type ProcessRandomness,
  type Stamps,
  unlessAborted,
} from "../domain/index.ts";
import { type Arrival, ClockDuty, type ValidityWindow } from "./clock-duty.ts";
import { renewRandomness } from "./entropy-duty.ts";
import type { DegradedToken, RestoreReport, RestoreRequest } from "./report.ts";

/** The call that asks for the duties. */
export interface RestoreCall<Session> {
  readonly arrival: Arrival;
  /** Validity of the caller's certificate; undefined on a connection without TLS. */
  readonly validity: ValidityWindow | undefined;
  readonly session: Session;
  /** Aborted when the client is gone: duties whose turn has not come are not begun then. */
  readonly signal: AbortSignal;
}

/** What of the agent must change with a restore, beside randomness and clock. Done in this order. */
export interface RenewedParts<Session> {
  /** Ends PRE_SNAPSHOT hooks that were running when the snapshot was taken. */
  readonly sweepHooks: () => Promise<void>;
  /** Reads the credential files anew and puts them in force; false when that was not possible. */
  readonly renewCredentials: () => Promise<boolean>;
  /** Ends every connection but one: their keys are shared with the siblings. Returns how many. */
  readonly dropOtherSessions: (keep: Session) => number;
  /** Starts what waits for a time anew: ready_cmd runs at once. */
  readonly rearmTimers: () => void;
}

/** What the restore capability needs. */
export interface RestoreParts<Session> {
  readonly kernel: Kernel;
  readonly randomness: ProcessRandomness;
  readonly clock: Clock;
  readonly stamps: Stamps;
  readonly activity: ActivityClock;
  readonly log: Log;
  readonly renew: RenewedParts<Session>;
}

/** The duties that make a restored guest another one than its siblings. */
export class Restore<Session> {
  readonly #parts: RestoreParts<Session>;
  readonly #clockDuty: ClockDuty;
  readonly #mutex = new Mutex();
  readonly #inProgress = new InProgress();

  constructor(parts: RestoreParts<Session>) {
    this.#parts = parts;
    this.#clockDuty = new ClockDuty(parts);
  }

  /** Counts duties as in progress from now until the returned function is called: their call has arrived. */
  begin(): () => void {
    return this.#inProgress.begin();
  }

  /** Resolves when no duties are in progress or waiting for their turn. Rejects with the signal's reason. */
  settled(signal: AbortSignal): Promise<void> {
    return this.#inProgress.none(signal);
  }

  /**
   * Performs the duties, one caller at a time. What cannot be performed is in the report. Overwrites the entropy
   * once it is used.
   *
   * @throws AgentError INVALID_ARGUMENT for entropy that is empty or over 64 KiB; then nothing has changed
   */
  async run(request: RestoreRequest, call: RestoreCall<Session>): Promise<RestoreReport> {
    const end = this.begin();
    try {
      checkEntropy(request.entropy);
      return await this.#mutex.run(() => this.#perform(request, call), call.signal);
    } finally {
      end();
    }
  }

  async #perform(request: RestoreRequest, call: RestoreCall<Session>): Promise<RestoreReport> {
    const { kernel, randomness, activity, renew, log } = this.#parts;
    const entropy = renewRandomness(request.entropy, kernel, randomness);
    request.entropy.fill(0);
    activity.restored();
    const clock = this.#clockDuty.run(request.hostTimeNs, call.arrival, call.validity);
    await renew.sweepHooks();
    const renewed = await renew.renewCredentials();
    const droppedSessions = renew.dropOtherSessions(call.session);
    renew.rearmTimers();
    const refused: DegradedToken[] = renewed ? [] : ["credentials_reload:refused"];
    const report = { ...entropy, ...clock, degraded: [...entropy.degraded, ...clock.degraded, ...refused] };
    log[report.degraded.length === 0 ? "info" : "warn"]("restore_duties_done", {
      entropyBytesMixed: report.entropyBytesMixed,
      entropyCredited: report.entropyCredited,
      clockDriftMs: Number(report.clockDriftMs),
      clockStepped: report.clockStepped,
      degraded: report.degraded.join(";"),
      droppedSessions,
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

/** Counts what is in progress, and lets others wait until nothing is. */
class InProgress {
  #count = 0;
  #none: PromiseWithResolvers<void> = Promise.withResolvers<void>();

  /** Something begins; the returned function ends it, once. */
  begin(): () => void {
    this.#count++;
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      this.#count--;
      if (this.#count > 0) return;
      this.#none.resolve();
      this.#none = Promise.withResolvers<void>();
    };
  }

  /** Resolves at once or when nothing is in progress any more. Rejects with the signal's reason. */
  async none(signal: AbortSignal): Promise<void> {
    while (this.#count > 0) await unlessAborted(this.#none.promise, signal);
  }
}
