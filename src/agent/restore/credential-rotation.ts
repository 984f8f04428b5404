import { errnoOf, messageOf } from "../../shared/errors.ts";
import { type Clock, type Log, Mutex, type Timers } from "../domain/index.ts";

/** Minimum interval between reloads caused by wrong tokens. */
const TOKEN_RELOAD_INTERVAL_MS = 1_000;
/** Minimum interval between checks of the files, and how long changed files must stay unchanged before they are read. */
const CHECK_INTERVAL_MS = 1_000;

/** Why the credentials are reloaded, for the log. */
export type RotationCause = "restore" | "signal" | "token" | "files" | "snapshot";

/** Frequent causes, for which an unchanged problem is not logged again. */
const QUIET: ReadonlySet<RotationCause> = new Set(["token", "files", "snapshot"]);

/** Files that the agent watches. */
interface WatchedFiles {
  /** Version of the files when they were last read. */
  readonly readVersion: string;
  /** Current version of the files. Never rejects. */
  presentVersion(): Promise<string>;
}

/** Whether the current files are in use. */
export interface Renewal {
  readonly credentials: boolean;
  readonly environment: boolean;
}

export interface CredentialRotationParts {
  /**
   * Token and TLS files. `reload` resolves with the problems, without any values. If there are any, the old credentials
   * stay in use.
   */
  readonly credentials: { reload(): Promise<readonly string[]> };
  /** Puts changed spec files into force. Resolves with false if one is invalid. Never rejects. */
  readonly specs: { renew(cause: RotationCause): Promise<boolean> };
  /** All these files. */
  readonly files: readonly WatchedFiles[];
  /** Makes new connections use the reloaded credentials. */
  readonly apply: () => void;
  readonly timers: Timers;
  readonly clock: Clock;
  readonly log: Log;
}

/** Reloads token, TLS and spec files when they change. */
export class CredentialRotation {
  readonly #parts: CredentialRotationParts;
  readonly #mutex = new Mutex();
  /** A reload in progress that is shared by calls with a wrong token. */
  #reloadForToken: Promise<boolean> | undefined;
  #nextReloadMs = Number.NEGATIVE_INFINITY;
  #nextCheckMs = Number.NEGATIVE_INFINITY;
  #isChecking = false;
  /** Version for which `#check` last reloaded: only once, even if stat(2) and fstat(2) report different versions. */
  #followedVersion: string | undefined;
  /** Version that was rejected and logged. */
  #refusedVersion: string | undefined;

  constructor(parts: CredentialRotationParts) {
    this.#parts = parts;
  }

  /**
   * Reloads the files. False means that a file is invalid (the log has the reason) and the old one stays in use. Never
   * rejects, because some callers do not await it, and a failing disk must not end the agent. A wrong token does not
   * reload spec files.
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
      // Otherwise calls and checks would log the same problem every second.
      const isKnown = version === this.#refusedVersion && QUIET.has(cause);
      this.#refusedVersion = version;
      if (!isKnown) for (const problem of problems) log.warn("credentials_refused", { cause, problem });
      return false;
    }
    this.#refusedVersion = undefined;
    log[cause === "token" || cause === "snapshot" ? "debug" : "info"]("credentials_renewed", { cause });
    return true;
  }

  /** Reads the files and puts them into force. Returns the problems. */
  async #reload(): Promise<readonly string[]> {
    try {
      const problems = await this.#parts.credentials.reload();
      if (problems.length === 0) this.#parts.apply();
      return problems;
    } catch (error) {
      return [`reading the credentials failed (${errnoOf(error) ?? messageOf(error)})`];
    }
  }

  /**
   * Reloads because a token does not match, since there may be a new one. Returns false also within a second of the
   * last reload.
   */
  renewForToken(): Promise<boolean> {
    const { clock } = this.#parts;
    if (this.#reloadForToken === undefined && clock.monotonicMs() < this.#nextReloadMs) return Promise.resolve(false);
    const renewed = async (): Promise<boolean> => (await this.renew("token")).credentials;
    this.#reloadForToken ??= renewed().finally(() => {
      this.#nextReloadMs = clock.monotonicMs() + TOKEN_RELOAD_INTERVAL_MS;
      this.#reloadForToken = undefined;
    });
    return this.#reloadForToken;
  }

  /**
   * Checks in the background, at a limited rate, whether the files have changed. Called for each connection and call.
   * Changed files are read once they have stayed unchanged for a second, because several files cannot be replaced
   * atomically. If the file system hangs, one check hangs and no other starts.
   */
  checkFiles(): void {
    const nowMs = this.#parts.clock.monotonicMs();
    if (this.#isChecking || nowMs < this.#nextCheckMs) return;
    this.#nextCheckMs = nowMs + CHECK_INTERVAL_MS;
    this.#isChecking = true;
    this.#checkNow(undefined);
  }

  get #readVersion(): string {
    return this.#parts.files.map(({ readVersion }) => readVersion).join(";");
  }

  resetRateLimits(): void {
    this.#nextReloadMs = Number.NEGATIVE_INFINITY;
    this.#nextCheckMs = Number.NEGATIVE_INFINITY;
  }

  #checkNow(before: string | undefined): void {
    this.#check(before).catch((error: unknown) => {
      this.#isChecking = false;
      this.#parts.log.error("background_failed", { task: "credential files", problem: messageOf(error) });
    });
  }

  async #check(before: string | undefined): Promise<void> {
    const { files, timers } = this.#parts;
    const present = (await Promise.all(files.map((each) => each.presentVersion()))).join(";");
    const changed = present !== this.#readVersion && present !== this.#followedVersion;
    if (changed && present !== before) {
      timers.after(CHECK_INTERVAL_MS, () => this.#checkNow(present));
      return;
    }
    if (changed) {
      this.#followedVersion = present;
      await this.renew("files");
    }
    this.#isChecking = false;
  }
}
