import { type AgentError, tooManyWatchers } from "./errors.ts";

/** Limits the number of concurrent watches, and lets the owner end all of them at once during shutdown. */
export class Watchers {
  readonly #limit: number;
  readonly #advice: string;
  readonly #closed = new AbortController();
  #count = 0;

  /** @param advice what a refused client should do, such as "end one of them, or call GetUsage instead" */
  constructor(limit: number, advice: string) {
    this.#limit = limit;
    this.#advice = advice;
  }

  /** Whether `shutDown` was called, which ends all watches, including those that begin later. */
  get left(): boolean {
    return this.#closed.signal.aborted;
  }

  /**
   * Runs a client's watch with a signal that is aborted when the client is gone or `shutDown` is called.
   *
   * @throws AgentError RESOURCE_EXHAUSTED if there are too many; otherwise what the watch throws
   */
  async watch<Result>(client: AbortSignal, watch: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    if (this.#count >= this.#limit) throw tooManyWatchers(this.#limit, this.#advice);
    this.#count += 1;
    try {
      return await watch(AbortSignal.any([client, this.#closed.signal]));
    } finally {
      this.#count -= 1;
    }
  }

  /** Ends all watches with `reason`. A watch that begins later ends at once with the same reason. */
  shutDown(reason: AgentError): void {
    this.#closed.abort(reason);
  }
}
