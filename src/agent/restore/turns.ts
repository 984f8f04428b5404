import { Mutex, unlessAborted } from "../domain/index.ts";

/** One turn for duties and freezes: a freeze waits for duties and the reverse, and POST_RESTORE for all duties. */
export class DutyTurns {
  readonly #mutex = new Mutex();
  readonly #duties = new Set<Promise<void>>();

  /** Counts duties as in progress from now on, as their call has arrived, until the returned function is called. */
  begin(): () => void {
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    this.#duties.add(ended);
    return () => {
      this.#duties.delete(ended);
      resolve();
    };
  }

  /** Resolves when no duties are in progress or waiting for their turn. Rejects with the signal's reason. */
  async settled(signal: AbortSignal): Promise<void> {
    while (this.#duties.size > 0) await unlessAborted(Promise.all(this.#duties), signal);
  }

  /** Runs a task in its turn. Rejects with the signal's reason if that is aborted before. */
  run<Result>(task: () => Promise<Result>, signal: AbortSignal): Promise<Result> {
    return this.#mutex.run(task, signal);
  }
}
