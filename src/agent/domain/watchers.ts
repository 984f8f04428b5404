import { type AgentError, tooManyWatchers } from "./errors.ts";

/** Places of the clients that watch something. Its owner ends all their watches at once when the agent leaves. */
export class Watchers {
  readonly #limit: number;
  readonly #instead: string;
  readonly #left = new AbortController();
  #count = 0;

  /** @param instead what a client without a place can do, such as "end one, or call GetUsage" */
  constructor(limit: number, instead: string) {
    this.#limit = limit;
    this.#instead = instead;
  }

  /** Why all watches have ended; undefined: they have not. */
  get left(): boolean {
    return this.#left.signal.aborted;
  }

  /**
   * Runs a client's watch, with a signal that is aborted when the client is gone or at `leave`.
   *
   * @throws AgentError RESOURCE_EXHAUSTED if all places are taken; what the watch throws
   */
  async watch<Result>(client: AbortSignal, watch: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    if (this.#count >= this.#limit) throw tooManyWatchers(this.#limit, this.#instead);
    this.#count += 1;
    try {
      return await watch(AbortSignal.any([client, this.#left.signal]));
    } finally {
      this.#count -= 1;
    }
  }

  /** Ends all watches with this reason, also those that come later. */
  leave(reason: AgentError): void {
    this.#left.abort(reason);
  }
}
