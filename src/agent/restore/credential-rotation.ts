import { errnoOf, messageOf } from "../../shared/errors.ts";
import { type Clock, type Log, Mutex, type Timers } from "../domain/index.ts";

/** Least time between two reloads because of wrong tokens. */
const REFUSALS_INTERVAL_MS = 1_000;
/** Least time between two checks of the files, and how long changed files must stay the same before they are read. */
const LOOKS_INTERVAL_MS = 1_000;

/** Why the credentials are reloaded, for the log. */
export type RotationCause = "restore" | "signal" | "token" | "files";

/** What rotation needs. */
export interface CredentialRotationParts {
  /** Reloads the files. Resolves with problems, which hold no value; with any, the old credentials stay. */
  readonly reload: () => Promise<readonly string[]>;
  /** Version of the files that were read last. */
  readonly readVersion: () => string;
  /** Version of the files now. Never rejects. */
  readonly presentVersion: () => Promise<string>;
  /** Makes new connections use the reloaded credentials. */
  readonly apply: () => void;
  readonly timers: Timers;
  readonly clock: Clock;
  readonly log: Log;
}

/** Lets token and TLS files change while the agent runs. */
export class CredentialRotation {
  readonly #parts: CredentialRotationParts;
  readonly #mutex = new Mutex();
  /** The reload in progress that calls with a wrong token share. */
  #beforeRefusal: Promise<boolean> | undefined;
  #mayReadAtMs = Number.NEGATIVE_INFINITY;
  #mayLookAtMs = Number.NEGATIVE_INFINITY;
  #looking = false;
  /** Version that `#look` last reloaded for: one reload, not one a check, where stat(2) and fstat(2) disagree. */
  #followedVersion: string | undefined;
  /** Version that was refused and logged already. */
  #refusedVersion: string | undefined;

  constructor(parts: CredentialRotationParts) {
    this.#parts = parts;
  }

  /**
   * Reloads the files. False: they cannot be used (the log says why), and the old credentials stay in force. Never
   * rejects: nobody waits for some of these calls, and a failing disk must not end the agent.
   */
  renew(cause: RotationCause): Promise<boolean> {
    return this.#mutex.run(async () => {
      const { readVersion, log } = this.#parts;
      const problems = await this.#reload();
      if (problems.length > 0) {
        // Otherwise calls and checks would log the same files every second.
        const isKnown = readVersion() === this.#refusedVersion && (cause === "token" || cause === "files");
        this.#refusedVersion = readVersion();
        if (!isKnown) for (const problem of problems) log.warn("credentials_refused", { cause, problem });
        return false;
      }
      this.#refusedVersion = undefined;
      log[cause === "token" ? "debug" : "info"]("credentials_renewed", { cause });
      return true;
    });
  }

  /** Reads the files and puts them in force. Returns the problems. */
  async #reload(): Promise<readonly string[]> {
    try {
      const problems = await this.#parts.reload();
      if (problems.length === 0) this.#parts.apply();
      return problems;
    } catch (error) {
      return [`reading the credentials failed (${errnoOf(error) ?? messageOf(error)})`];
    }
  }

  /** Reloads for a token that does not match, as there may be a new one. False also soon after the last reload. */
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
   * Checks in the background, at a bounded rate, whether the files have changed; called for every connection and call.
   * Reads changed files once they have stayed the same for a second, since several files cannot be replaced in one
   * step. On a file system that hangs, one check hangs and no other begins.
   */
  lookAgain(): void {
    const nowMs = this.#parts.clock.monotonicMs();
    if (this.#looking || nowMs < this.#mayLookAtMs) return;
    this.#mayLookAtMs = nowMs + LOOKS_INTERVAL_MS;
    this.#looking = true;
    this.#lookNow(undefined);
  }

  /** Lifts the rate limits until the next reload and check. */
  rearm(): void {
    this.#mayReadAtMs = Number.NEGATIVE_INFINITY;
    this.#mayLookAtMs = Number.NEGATIVE_INFINITY;
  }

  #lookNow(before: string | undefined): void {
    this.#look(before).catch((error: unknown) => {
      this.#looking = false;
      this.#parts.log.error("background_failed", { task: "credential files", problem: messageOf(error) });
    });
  }

  async #look(before: string | undefined): Promise<void> {
    const { readVersion, presentVersion, timers } = this.#parts;
    const present = await presentVersion();
    const changed = present !== readVersion() && present !== this.#followedVersion;
    if (changed && present !== before) {
      timers.after(LOOKS_INTERVAL_MS, () => this.#lookNow(present));
      return;
    }
    if (changed) {
      this.#followedVersion = present;
      await this.renew("files");
    }
    this.#looking = false;
  }
}
