import { errnoOf, messageOf } from "../../shared/errors.ts";
import { type Clock, type Log, Mutex, type Timers } from "../domain/index.ts";

/** Least time between two reloads because of wrong tokens. */
const REFUSALS_INTERVAL_MS = 1_000;
/** Least time between two checks of the files, and how long changed files must stay the same before they are read. */
const LOOKS_INTERVAL_MS = 1_000;

/** Why the credentials are reloaded, for the log. */
export type RotationCause = "restore" | "signal" | "token" | "files" | "snapshot";

/** Causes that only the restore of a snapshot or an operator has are logged each time; the others come often. */
const QUIET: ReadonlySet<RotationCause> = new Set(["token", "files", "snapshot"]);

/** Files that the agent watches. */
interface WatchedFiles {
  /** Version of the files that were read last. */
  readonly readVersion: string;
  /** Version of the files now. Never rejects. */
  presentVersion(): Promise<string>;
}

/** Which of the files are in force as they are now. */
export interface Renewal {
  readonly credentials: boolean;
  readonly environment: boolean;
}

/** What rotation needs. */
export interface CredentialRotationParts {
  /** Token and TLS files. `reload` resolves with problems, without any value; with one, the old credentials stay. */
  readonly credentials: { reload(): Promise<readonly string[]> };
  /** Puts changed spec files in force. Resolves with false if one cannot be used. Never rejects. */
  readonly specs: { renew(cause: RotationCause): Promise<boolean> };
  /** All of these files. */
  readonly files: readonly WatchedFiles[];
  /** Makes new connections use the reloaded credentials. */
  readonly apply: () => void;
  readonly timers: Timers;
  readonly clock: Clock;
  readonly log: Log;
}

/** Lets token, TLS and spec files change while the agent runs. */
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
   * Reloads the files. What is false cannot be used (the log says why), and the old stays in force. Never rejects:
   * nobody waits for some of these calls, and a failing disk must not end the agent. A wrong token reads no spec
   * files.
   */
  renew(cause: RotationCause): Promise<Renewal> {
    return this.#mutex.run(async () => {
      const credentials = await this.#renewCredentials(cause);
      return { credentials, environment: cause === "token" || (await this.#parts.specs.renew(cause)) };
    });
  }

  async #renewCredentials(cause: RotationCause): Promise<boolean> {
    const { log } = this.#parts;
    const problems = await this.#reload();
    const version = this.#readVersion;
    if (problems.length > 0) {
      // Otherwise calls and checks would log the same files every second.
      const isKnown = version === this.#refusedVersion && QUIET.has(cause);
      this.#refusedVersion = version;
      if (!isKnown) for (const problem of problems) log.warn("credentials_refused", { cause, problem });
      return false;
    }
    this.#refusedVersion = undefined;
    log[cause === "token" || cause === "snapshot" ? "debug" : "info"]("credentials_renewed", { cause });
    return true;
  }

  /** Reads the files and puts them in force. Returns the problems. */
  async #reload(): Promise<readonly string[]> {
    try {
      const problems = await this.#parts.credentials.reload();
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
    const renewed = async (): Promise<boolean> => (await this.renew("token")).credentials;
    this.#beforeRefusal ??= renewed().finally(() => {
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

  get #readVersion(): string {
    return this.#parts.files.map(({ readVersion }) => readVersion).join(";");
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
    const { files, timers } = this.#parts;
    const present = (await Promise.all(files.map((each) => each.presentVersion()))).join(";");
    const changed = present !== this.#readVersion && present !== this.#followedVersion;
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
