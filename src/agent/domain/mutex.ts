/** Lets one task run at a time, in the order of the calls. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();

  /** Runs the task after the earlier ones. Rejects with the signal's reason if that is aborted before its turn. */
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

/** Arguments or variables to handle before other calls get a turn of the event loop. */
export const STRINGS_A_TURN = 16_384;

/** Resolves in the next turn of the event loop, after other calls had theirs. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
