import { Mutex, unlessAborted } from "../domain/index.ts";

/**
 * A queue for RunRestoreDuties calls and freezes of the session, which must not run at the same time. A POST_RESTORE
 * hook uses it to wait for all restore steps.
 */
export class DutyQueue {
  readonly #mutex = new Mutex();
  readonly #duties = new Set<Promise<void>>();

  /**
   * Records that a RunRestoreDuties call has arrived. Its restore steps count as running until the returned function is
   * called.
   */
  begin(): () => void {
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    this.#duties.add(ended);
    return () => {
      this.#duties.delete(ended);
      resolve();
    };
  }

  /** Resolves when no restore steps are running or waiting. Rejects with the signal's reason. */
  async settled(signal: AbortSignal): Promise<void> {
    while (this.#duties.size > 0) await unlessAborted(Promise.all(this.#duties), signal);
  }

  /** Runs a task when it is its turn. If the signal is aborted before that, rejects with the signal's reason. */
  run<Result>(task: () => Promise<Result>, signal: AbortSignal): Promise<Result> {
    return this.#mutex.run(task, signal);
  }
}
