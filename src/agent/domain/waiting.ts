/** Lets one task run at a time, in the order of the calls. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();

  /** Runs the task after the earlier ones. Rejects with the signal's reason if that is aborted before the task begins. */
  async run<Result>(task: () => Promise<Result>, signal?: AbortSignal): Promise<Result> {
    signal?.throwIfAborted();
    const before = this.#last;
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    this.#last = before.then(() => over);
    try {
      await unlessAborted(before, signal);
      return await task();
    } finally {
      end();
    }
  }
}

/** Resolves with the promise, or rejects with the signal's reason, whichever comes first. */
export async function unlessAborted<Value>(promise: Promise<Value>, signal: AbortSignal | undefined): Promise<Value> {
  if (signal === undefined) return promise;
  signal.throwIfAborted();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  using _listener = whenAborted(signal, () => reject(signal.reason as Error));
  return await Promise.race([promise, aborted]);
}

/** Calls back when the signal is aborted, at once if it is already; no more once the result is disposed of. */
export function whenAborted(signal: AbortSignal, callback: () => void): Disposable {
  if (signal.aborted) callback();
  signal.addEventListener("abort", callback);
  return { [Symbol.dispose]: () => signal.removeEventListener("abort", callback) };
}

/** Resolves with the promise, but no later than after that time. Rejects as the promise does. */
export async function within(promise: Promise<unknown>, limitMs: number): Promise<void> {
  const { promise: timeUp, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, limitMs);
  try {
    await Promise.race([promise, timeUp]);
  } finally {
    clearTimeout(timer);
  }
}

/** What is loaded at its first use. A load that has failed is tried again at the next use. */
export class Late<Value> {
  readonly #load: () => Promise<Value>;
  #loading: Promise<Value> | undefined;

  constructor(load: () => Promise<Value>) {
    this.#load = load;
  }

  /** What `get` has begun to load or loaded; undefined: nothing. */
  get begun(): Promise<Value> | undefined {
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

/** Arguments or variables to handle in one tick of the event loop. */
export const STRINGS_PER_TICK = 16_384;

/** Resolves in the next tick of the event loop: other calls go on before. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
