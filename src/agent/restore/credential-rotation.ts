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

/** What became of the spec files (SVC_PROCESS_SPEC_FILE, SVC_HOOKS_SPEC_FILE). */
interface EnvironmentRenewal {
  /** Why they cannot be used, without any value; then the old variables stay in force. */
  readonly problems: readonly string[];
  /** Changed fields that an agent which runs does not take. */
  readonly ignored: readonly string[];
  /** HealthResponse.process_env_version, where it has changed. */
  readonly version?: number;
}

/** Which of the files are in force as they are now. */
export interface Renewal {
  readonly credentials: boolean;
  readonly environment: boolean;
}

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
  /** Reads the spec files and puts the variables of their `env` in force, where they have changed. */
  readonly renewEnvironment: () => Promise<EnvironmentRenewal>;
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
      return { credentials, environment: cause === "token" || (await this.#renewEnvironment(cause)) };
    });
  }

  async #renewEnvironment(cause: RotationCause): Promise<boolean> {
    const { renewEnvironment, log } = this.#parts;
    const failed = (error: unknown): EnvironmentRenewal => ({
      problems: [`reading the spec files failed (${errnoOf(error) ?? messageOf(error)})`],
      ignored: [],
    });
    const { problems, ignored, version } = await renewEnvironment().catch(failed);
    for (const problem of problems) log.warn("process_env_refused", { cause, problem });
    for (const field of ignored) log.warn("spec_field_ignored", { field });
    if (version !== undefined) log.info("process_env_renewed", { cause, version });
    return problems.length === 0;
  }

  async #renewCredentials(cause: RotationCause): Promise<boolean> {
    const { readVersion, log } = this.#parts;
    const problems = await this.#reload();
    if (problems.length > 0) {
      // Otherwise calls and checks would log the same files every second.
      const isKnown = readVersion() === this.#refusedVersion && QUIET.has(cause);
      this.#refusedVersion = readVersion();
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
