import { errnoOf, messageOf } from "../../shared/errors.ts";
import { type Clock, type Log, Mutex, type Timers } from "../domain/index.ts";

/** Minimum interval between reloads caused by wrong tokens. */
const TOKEN_RELOAD_INTERVAL_MS = 1_000;
/**
 * Shortest time between checks of the files. A check reads changed files only if the check before it has found the same
 * version. Otherwise the host may still be replacing files.
 */
const CHECK_INTERVAL_MS = 1_000;

/** Why the credentials are reloaded, for the log. */
export type RotationCause = "restore" | "signal" | "token" | "files" | "snapshot";

/** Frequent causes of reloads. A problem found by such a reload is logged once, until a file has changed. */
const QUIET: ReadonlySet<RotationCause> = new Set(["token", "files", "snapshot"]);

interface WatchedFiles {
  /** The version that the files had when they were last read. It differs after every change of a file. */
  readonly readVersion: string;
  /** Resolves with the current version of the files. Never rejects. */
  presentVersion(): Promise<string>;
}

/** For each kind of files: whether the agent now uses their current content. False if a file is invalid. */
export interface Renewal {
  readonly credentials: boolean;
  readonly environment: boolean;
}

export interface CredentialRotationParts {
  /**
   * The token and the TLS files. `reload` resolves with the problems, which contain no values. If there are problems,
   * the old credentials stay in use.
   */
  readonly credentials: { reload(): Promise<readonly string[]> };
  /** Begins to use changed spec files. Resolves with false if one is invalid. Never rejects. */
  readonly specs: { renew(cause: RotationCause): Promise<boolean> };
  /** The credential files and the spec files. */
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
  /** The reload in progress, if there is one. All calls with a wrong token wait for the same reload. */
  #reloadForToken: Promise<boolean> | undefined;
  #nextReloadMs = Number.NEGATIVE_INFINITY;
  #nextCheckMs = Number.NEGATIVE_INFINITY;
  #isChecking = false;
  /**
   * The version of the files at the last reload that `#check` started. `#check` does not reload this version again.
   * Otherwise it would reload endlessly on a file system whose stat(2) and fstat(2) disagree, because an unchanged file
   * would always look changed.
   */
  #followedVersion: string | undefined;
  /**
   * Version of the credential and spec files when a reload of the credentials last failed; undefined after a successful
   * reload. The problems of the credential files of this version are in the log.
   */
  #refusedVersion: string | undefined;

  constructor(parts: CredentialRotationParts) {
    this.#parts = parts;
  }

  /**
   * Reloads the credential files and the spec files, except with the cause "token": then only the credential files. If
   * a file is invalid, logs the reason, keeps the file's old content in use, and resolves with false for its kind of
   * files. Never rejects, because some callers do not await the promise.
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
      // A cause in QUIET can recur every second. With such a cause, problems are logged only if the version of the
      // files differs from that of the last failed reload.
      const isKnown = version === this.#refusedVersion && QUIET.has(cause);
      this.#refusedVersion = version;
      if (!isKnown) for (const problem of problems) log.warn("credentials_refused", { cause, problem });
      return false;
    }
    this.#refusedVersion = undefined;
    log[cause === "token" || cause === "snapshot" ? "debug" : "info"]("credentials_renewed", { cause });
    return true;
  }

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
   * Reloads the files after a call with a wrong token: the host may have written a new token. Resolves with false if a
   * file is invalid, or if the last such reload was less than a second ago.
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
   * Checks in the background whether the files have changed, at most once per CHECK_INTERVAL_MS. Reads changed files
   * only after they have stayed unchanged for a second, because several files cannot be replaced atomically. If the
   * file system hangs, no further check starts.
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
