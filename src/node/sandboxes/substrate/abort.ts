import { AsyncLocalStorage } from "node:async_hooks";
import { GuestError } from "../../client/index.ts";
import { SandboxError } from "./errors.ts";

/** Options of every operation that takes time. */
export interface OperationOptions {
  /**
   * Aborting this signal ends the operation at its next safe point. The operation rejects with an error that has the
   * name "AbortError" and the code ABORT_ERR.
   *
   * A wait, or a request that only reads, ends at once. A change that was already requested from the daemon is awaited,
   * because the daemon completes it anyway. Then, as after any failure, everything that the operation has created is
   * removed, and a frozen session is thawed.
   */
  readonly signal?: AbortSignal | undefined;
  /** Time limit of the whole operation, in milliseconds; at its end, the operation fails with OPERATION_TIMED_OUT. */
  readonly requestTimeoutMs?: number | undefined;
}

/** The longest delay that Node's timers accept. A longer time limit is not enforced. */
export const LONGEST_TIMER_MS: number = 2 ** 31 - 1;

/**
 * Returns a signal that is aborted after this time. If Node's timers do not accept such a long time, the signal is
 * never aborted.
 */
export function timeoutSignal(limitMs: number): AbortSignal {
  return limitMs > LONGEST_TIMER_MS ? new AbortController().signal : AbortSignal.timeout(Math.ceil(limitMs));
}

/** Throws SandboxError (INVALID_SPEC) unless the value is a time limit in milliseconds. Infinity means no limit. */
export function checkLimit(limitMs: number | undefined, field: string): void {
  if (limitMs === undefined || (typeof limitMs === "number" && limitMs >= 0)) return;
  throw new SandboxError("INVALID_SPEC", `${field} must be a number of milliseconds, at least 0`);
}

/** Throws SandboxError (INVALID_SPEC) unless the value is a finite time in milliseconds. */
export function checkDuration(durationMs: number | undefined, field: string): void {
  checkLimit(durationMs, field);
  if (durationMs === undefined || Number.isFinite(durationMs)) return;
  throw new SandboxError("INVALID_SPEC", `${field} must be a finite number of milliseconds`);
}

interface Running {
  readonly signal: AbortSignal;
  readonly failure: () => SandboxError;
}

/**
 * The operation to which the running code belongs. Every function that an operation calls can read it here, except in
 * parts that must not be aborted (`lasting`).
 */
const running = new AsyncLocalStorage<Running | undefined>();

/** Runs an operation that the caller's signal and time limit can end. Rejects with SandboxError. */
export async function abortable<Value>(
  { signal, requestTimeoutMs = Number.POSITIVE_INFINITY }: OperationOptions,
  action: () => Promise<Value>,
): Promise<Value> {
  checkLimit(requestTimeoutMs, "requestTimeoutMs");
  const limit = requestTimeoutMs > LONGEST_TIMER_MS ? undefined : timeoutSignal(requestTimeoutMs);
  const either = [signal, limit].filter((one) => one !== undefined);
  if (either.length === 0) return action();
  const failure = (): SandboxError =>
    signal?.aborted === true
      ? new SandboxError("ABORT_ERR", "the caller's signal was aborted", signal.reason)
      : new SandboxError("OPERATION_TIMED_OUT", `the operation has not ended within ${requestTimeoutMs} ms`);
  const own = { signal: AbortSignal.any(either), failure };
  return running.run(own, async () => {
    throwIfAborted();
    try {
      return await action();
    } catch (error) {
      throw own.signal.aborted && isAbort(error) ? failure() : error;
    }
  });
}

/** Runs a part of an operation that must not be aborted, such as the cleanup after a failure. */
export function lasting<Value>(action: () => Promise<Value>): Promise<Value> {
  return running.run(undefined, action);
}

/** Throws SandboxError if the current operation is aborted, or its time is over. */
export function throwIfAborted(): void {
  const operation = running.getStore();
  if (operation?.signal.aborted === true) throw operation.failure();
}

/** Resolves or rejects as `promise` does, or rejects with SandboxError if the current operation is aborted first. */
export async function orAborted<Value>(promise: Promise<Value>): Promise<Value> {
  const operation = running.getStore();
  if (operation === undefined) return promise;
  const { signal, failure } = operation;
  let onAbort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => (onAbort = () => reject(failure())));
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/**
 * Returns a signal that is aborted when the current operation or one of `others` is aborted. Returns undefined if
 * neither exists.
 */
export function currentSignal(...others: readonly (AbortSignal | undefined)[]): AbortSignal | undefined {
  const all = [running.getStore()?.signal, ...others].filter((one) => one !== undefined);
  return all.length < 2 ? all[0] : AbortSignal.any(all);
}

/** Whether an error or one of its causes says that an operation or a call was aborted. */
function isAbort(error: unknown): boolean {
  for (let one = error; one instanceof Error; one = one.cause) {
    if (one instanceof SandboxError && (one.code === "ABORT_ERR" || one.code === "OPERATION_TIMED_OUT")) return true;
    if (one instanceof GuestError && one.code === "ABORT_ERR") return true;
  }
  return false;
}
