import { type Clock, type Log, Mutex, type Timers } from "../domain/index.ts";

/** Wrong tokens make us read the files no more often than this. */
const REFUSALS_INTERVAL_MS = 1_000;
/** The files are looked at no more often than this, and count once they have not changed for as long. */
const LOOKS_INTERVAL_MS = 1_000;

/** What makes the credentials be read anew: for the log. */
export type RotationCause = "restore" | "signal" | "token" | "files";

/** What rotation needs. */
export interface CredentialRotationParts {
  /** Reads the files anew. Problems, without any value; then everything stays as it was. */
  readonly reload: () => Promise<readonly string[]>;
  /** Which files were read last. */
  readonly readVersion: () => string;
  /** Which files are there now; never rejects. */
  readonly presentVersion: () => Promise<string>;
  /** Has new connections use what was read. */
  readonly apply: () => void;
  readonly timers: Timers;
  readonly clock: Clock;
  readonly log: Log;
}

/** Lets token and TLS files change while the agent runs. */
export class CredentialRotation {
  readonly #parts: CredentialRotationParts;
  readonly #mutex = new Mutex();
  /** The reading on behalf of calls about to be refused that is in progress: they share it. */
  #beforeRefusal: Promise<boolean> | undefined;
  #mayReadAtMs = Number.NEGATIVE_INFINITY;
  #mayLookAtMs = Number.NEGATIVE_INFINITY;
  #looking = false;
  /** Files that have been read because they were there: a file system that tells two stories of one is believed once. */
  #followedVersion: string | undefined;
  /** Files that were refused and are told of no more. */
  #refusedVersion: string | undefined;

  constructor(parts: CredentialRotationParts) {
    this.#parts = parts;
  }

  /** Reads the files as they are now. False: they cannot be used (the log says why), and the old ones stay in force. */
  renew(cause: RotationCause): Promise<boolean> {
    return this.#mutex.run(async () => {
      const { reload, readVersion, apply, log } = this.#parts;
      const problems = await reload();
      if (problems.length > 0) {
        // Calls and looks would tell of the same files every second.
        const isKnown = readVersion() === this.#refusedVersion && (cause === "token" || cause === "files");
        this.#refusedVersion = readVersion();
        if (!isKnown) for (const problem of problems) log.warn("credentials_refused", { cause, problem });
        return false;
      }
      this.#refusedVersion = undefined;
      apply();
      log[cause === "token" ? "debug" : "info"]("credentials_renewed", { cause });
      return true;
    });
  }

  /** For a call whose token does not match: there may be a new one by now. At a bounded rate; false also when too soon. */
  renewBeforeRefusal(): Promise<boolean> {
    const { clock } = this.#parts;
    if (this.#beforeRefusal === undefined && clock.monotonicMs() < this.#mayReadAtMs) return Promise.resolve(false);
    this.#beforeRefusal ??= this.renew("token").finally(() => {
      this.#mayReadAtMs = clock.monotonicMs() + REFUSALS_INTERVAL_MS;
      this.#beforeRefusal = undefined;
    });
    return this.#beforeRefusal;
  }

  /**
   * For every connection and call: looks whether there are other files by now, without holding anybody up, and at a
   * bounded rate. New ones are read once they have been the same for a second: whoever replaces several does not do it
   * in one step. A file system that hangs costs one look.
   */
  lookAgain(): void {
    const nowMs = this.#parts.clock.monotonicMs();
    if (this.#looking || nowMs < this.#mayLookAtMs) return;
    this.#mayLookAtMs = nowMs + LOOKS_INTERVAL_MS;
    this.#looking = true;
    void this.#look(undefined);
  }

  /** Allows the next reading at once. */
  rearm(): void {
    this.#mayReadAtMs = Number.NEGATIVE_INFINITY;
    this.#mayLookAtMs = Number.NEGATIVE_INFINITY;
  }

  async #look(before: string | undefined): Promise<void> {
    const { readVersion, presentVersion, timers } = this.#parts;
    const present = await presentVersion();
    const changed = present !== readVersion() && present !== this.#followedVersion;
    if (changed && present !== before) {
      timers.after(LOOKS_INTERVAL_MS, () => void this.#look(present));
      return;
    }
    if (changed) {
      this.#followedVersion = present;
      await this.renew("files");
    }
    this.#looking = false;
  }
}
