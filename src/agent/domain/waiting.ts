/** Runs asynchronous tasks one at a time, in the order in which `run` is called. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();

  /**
   * Runs the task when the tasks of all earlier calls have ended. If the signal is aborted before the task starts,
   * rejects with the signal's reason.
   */
  async run<Result>(task: () => Promise<Result>, signal?: AbortSignal): Promise<Result> {
    signal?.throwIfAborted();
    const before = this.#last;
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    this.#last = before.then(() => ended);
    try {
      await unlessAborted(before, signal);
      return await task();
    } finally {
      end();
    }
  }
}

/** Settles like the promise, or rejects with the signal's reason, whichever comes first. */
export async function unlessAborted<Value>(promise: Promise<Value>, signal: AbortSignal | undefined): Promise<Value> {
  if (signal === undefined) return promise;
  signal.throwIfAborted();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  using _listener = whenAborted(signal, () => reject(signal.reason as Error));
  return await Promise.race([promise, aborted]);
}

/** Calls back when the signal is aborted, or at once if it already is. Dispose of the result to stop listening. */
export function whenAborted(signal: AbortSignal, callback: () => void): Disposable {
  if (signal.aborted) callback();
  signal.addEventListener("abort", callback);
  return { [Symbol.dispose]: () => signal.removeEventListener("abort", callback) };
}

/**
 * Waits for `delayMs`, then handles all input that has arrived by then, and then runs the task once. Returns a function
 * that cancels the task.
 *
 * Use it for timeouts. A plain timer would report a timeout although the answer has arrived: after a pause of the
 * guest, the event loop runs expired timers before it polls for input.
 *
 * @param keepsAlive whether the timer keeps the process alive
 */
export function afterArrivals(delayMs: number, task: () => void, keepsAlive = true): () => void {
  let polled: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    // The callback of setImmediate() runs after the poll phase of the same iteration of the event loop. So input that
    // has arrived is handled before `task` runs.
    polled = setImmediate(task);
  }, delayMs);
  if (!keepsAlive) timer.unref();
  return () => {
    clearUnreferenced(timer);
    clearImmediate(polled);
  };
}

/**
 * Clears a timer. Needed for each timer that does not keep the process alive (`unref`): after clearTimeout() alone,
 * Node still wakes up at the time at which this timer was due (lib/internal/timers.js, unenroll). Every clone of a
 * snapshot would repeat these wake-ups.
 */
export function clearUnreferenced(timer: NodeJS.Timeout | undefined): void {
  timer?.ref();
  clearTimeout(timer);
}

/** Resolves when the promise resolves, or after `limitMs` if that is earlier. Rejects if the promise rejects first. */
export async function within(promise: Promise<unknown>, limitMs: number): Promise<void> {
  const { promise: timeUp, resolve } = Promise.withResolvers<void>();
  const cancel = afterArrivals(limitMs, resolve);
  try {
    await Promise.race([promise, timeUp]);
  } finally {
    cancel();
  }
}

/** A value that is loaded at its first use. A failed load is retried at the next use. */
export class Lazy<Value> {
  readonly #load: () => Promise<Value>;
  #loading: Promise<Value> | undefined;

  constructor(load: () => Promise<Value>) {
    this.#load = load;
  }

  /** The promise of the value; undefined before the first use and after a failed load. */
  get started(): Promise<Value> | undefined {
    return this.#loading;
  }

  get(): Promise<Value> {
    this.#loading ??= this.#load().catch((error: unknown) => {
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }
}

/** Number of arguments or variables to process per tick of the event loop. */
export const STRINGS_PER_TICK = 16_384;

/** Resolves in the next tick of the event loop, so that long work does not delay other calls. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
