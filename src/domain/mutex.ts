/** Lets one task run at a time, in the order of the calls. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();

  /**
   * Runs the task once those before it have ended, however they ended. Rejects with the signal's reason when it is
   * aborted before the task's turn has come; the task then never runs.
   */
  async run<Result>(task: () => Promise<Result>, signal?: AbortSignal): Promise<Result> {
    signal?.throwIfAborted();
    const before = this.#last;
    const { promise: turn, resolve: pass } = Promise.withResolvers<void>();
    this.#last = before.then(() => turn);
    try {
      await unlessAborted(before, signal);
      return await task();
    } finally {
      pass();
    }
  }
}

/** Resolves with the promise, or rejects with the signal's reason, whichever comes first. */
export async function unlessAborted<Value>(promise: Promise<Value>, signal: AbortSignal | undefined): Promise<Value> {
  if (signal === undefined) return promise;
  signal.throwIfAborted();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason as Error);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** After so many arguments or variables, all others get a turn. */
export const STRINGS_A_TURN = 16_384;

/** Lets all others have a turn of the event loop. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
