import { abortedError, GuestError } from "../errors/errors.ts";
import type { TimeLimit } from "../time-limit.ts";

/**
 * Ends a copy when its caller aborts it or when its time limit expires. This class is needed for a local file system
 * that does not answer: the calls to the agent end by themselves, but the copy would still wait for the file system.
 * Must be disposed of.
 */
export class CopyEnd implements Disposable {
  readonly #controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  readonly #timer: NodeJS.Timeout | undefined;

  constructor(signal: AbortSignal | undefined, limit: TimeLimit) {
    this.#caller = signal;
    if (signal?.aborted === true) this.#onAbort();
    else signal?.addEventListener("abort", this.#onAbort);
    const endMs = (limit.left() ?? Infinity) + GRACE_MS;
    if (endMs <= LONGEST_TIMER_MS) this.#timer = setTimeout(() => this.#controller.abort(late()), endMs).unref();
  }

  /** Aborted when the copy is ended; the reason is a GuestError. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Resolves with the value, or rejects with the GuestError if the copy is ended first. */
  async orEnd<Value>(promise: Value | Promise<Value>): Promise<Value> {
    const { signal } = this;
    // If the copy has ended already, nothing awaits the promise. Without this handler, its rejection would then end the
    // caller's process.
    if (promise instanceof Promise) promise.catch(() => undefined);
    signal.throwIfAborted();
    if (!(promise instanceof Promise)) return promise;
    return new Promise((resolve, reject) => {
      const onAbort = (): void => reject(signal.reason as GuestError);
      signal.addEventListener("abort", onAbort);
      promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
    });
  }

  /** Stops the timer of the time limit, and cancels the calls that use `signal`. */
  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#onAbort);
    this.#controller.abort();
  }

  readonly #onAbort = (): void => {
    if (this.#caller !== undefined) this.#controller.abort(abortedError(this.#caller));
  };
}

/**
 * Time between the time limit of a copy and its forced end. The calls to the agent have the same time limit. If one of
 * them fails during this time, the copy ends with the error of that call, which explains more.
 */
const GRACE_MS = 1_000;
/** The longest delay that Node's timers accept. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

function late(): GuestError {
  const message = "the copy did not end within its time limit: a local file system did not answer";
  return new GuestError({ status: "DEADLINE_EXCEEDED", message });
}
