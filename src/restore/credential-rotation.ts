import { type Clock, type Log, Mutex } from "../domain/index.ts";

/** Wrong tokens make us read the files no more often than this. */
const REFUSALS_INTERVAL_MS = 1_000;

/** What makes the credentials be read anew: for the log. */
export type RotationCause = "restore" | "signal" | "token";

/** What rotation needs. */
export interface CredentialRotationParts {
  /** Reads the files anew. Problems, without any value; then everything stays as it was. */
  readonly reload: () => Promise<readonly string[]>;
  /** Has new connections use what was read. */
  readonly apply: () => void;
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

  constructor(parts: CredentialRotationParts) {
    this.#parts = parts;
  }

  /** Reads the files as they are now. False: they cannot be used (the log says why), and the old ones stay in force. */
  renew(cause: RotationCause): Promise<boolean> {
    return this.#mutex.run(async () => {
      const { reload, apply, log } = this.#parts;
      const problems = await reload();
      for (const problem of problems) log.warn("credentials_refused", { cause, problem });
      if (problems.length > 0) return false;
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

  /** Allows the next reading at once. */
  rearm(): void {
    this.#mayReadAtMs = Number.NEGATIVE_INFINITY;
  }
}
