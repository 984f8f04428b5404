import { stat } from "node:fs";
import type { FileSystemHung } from "../../domain/index.ts";
import {
  classOf,
  type Holdable,
  mountUnder,
  type Running,
  SLOW_TICKS,
  type Work,
  type WorkClass,
} from "./operation.ts";

/**
 * Largest number of operations of each class that run at once. Operations that have become slow are not counted. Syncs
 * and lookups run on extra threads, so that they need not wait for calls.
 */
const AT_ONCE: Readonly<Record<WorkClass, number>> = { lookup: 4, sync: 8, call: 3 };
/** Threads for syncs, lookups and slow operations. */
const EXTRA_THREADS = 16;
/** Size of libuv's pool, which cannot grow later. One thread stays free for other work (user database, credentials). */
const POOL_THREADS: number = AT_ONCE.call + EXTRA_THREADS + 1;
/**
 * Largest number of operations of one class that run at once on one file system, including slow ones. Calls are counted
 * separately for each step, such as "open" or "write".
 */
const ALIKE_AT_ONCE: Readonly<Record<WorkClass, number>> = { lookup: 4, sync: 8, call: 4 };

export interface Waiting {
  readonly work: Work<never>;
  /**
   * Ends the wait. If `running` is defined, the operation may run now. If it is undefined, the operation must check
   * whether its mount hangs, and then wait again.
   */
  readonly start: (running: Running | undefined) => void;
  readonly reject: (error: FileSystemHung) => void;
  ticks: number;
}

/**
 * Assigns threads to file operations, within two limits:
 *
 * - AT_ONCE for each class of operations. An operation that becomes slow is no longer counted, so another can run.
 * - ALIKE_AT_ONCE for similar operations on one file system, so that a file system that hangs cannot block all threads.
 */
export class ThreadPool {
  /** Operations that run on a thread now, including those that hang. */
  readonly running: Set<Running> = new Set();
  readonly #queues: Readonly<Record<WorkClass, Set<Waiting>>> = { lookup: new Set(), sync: new Set(), call: new Set() };
  readonly #inOrder: readonly Set<Waiting>[] = [this.#queues.lookup, this.#queues.sync, this.#queues.call];
  readonly #fileSystems = new WeakMap<Holdable, string>();

  constructor() {
    startFileThreads();
  }

  get waiting(): Waiting[] {
    return this.#inOrder.flatMap((queue) => [...queue]);
  }

  /**
   * Whether all extra threads are in use. If so, a call that becomes slow gets no extra thread, so it still counts
   * toward the limit AT_ONCE.
   */
  get isFull(): boolean {
    return this.#count(({ isExtra }) => isExtra) >= EXTRA_THREADS;
  }

  /**
   * Takes a thread for an operation as soon as one is free. If a file system becomes slow or hangs during the wait,
   * takes no thread and resolves with undefined. The caller must then check whether the operation uses this file
   * system, and if it does not, call `enter` again. If the operation's signal is aborted during the wait, rejects with
   * the signal's reason.
   */
  enter(work: Work<never>): Running | Promise<Running | undefined> {
    return this.#start(work) ?? this.#wait(work);
  }

  async #wait(work: Work<never>): Promise<Running | undefined> {
    const { signal } = work;
    signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<Running | undefined>();
    const waiting: Waiting = { work, start: resolve, reject, ticks: 0 };
    const queue = this.#queues[classOf(work)].add(waiting);
    const giveUp = (): void => {
      if (queue.delete(waiting)) reject(signal?.reason as Error);
    };
    signal?.addEventListener("abort", giveUp);
    try {
      return await promise;
    } finally {
      signal?.removeEventListener("abort", giveUp);
    }
  }

  /** Call it when an operation has ended: frees its thread, and lets waiting operations run. */
  leave(running: Running): void {
    this.running.delete(running);
    this.startWaiting();
  }

  /**
   * Makes room for another operation: from now on, this slow operation occupies an extra thread instead of one of the
   * AT_ONCE threads. Does nothing if all extra threads are in use.
   */
  releaseSlot(running: Running): void {
    running.isExtra ||= !this.isFull;
    this.startWaiting();
  }

  /** Removes a waiting operation from its queue and rejects it with this error. */
  refuse(waiting: Waiting, error: FileSystemHung): void {
    this.#queues[classOf(waiting.work)].delete(waiting);
    waiting.reject(error);
  }

  /** Makes each waiting operation check again whether its mount hangs. */
  recheck(): void {
    for (const waiting of this.waiting) {
      this.#queues[classOf(waiting.work)].delete(waiting);
      waiting.start(undefined);
    }
  }

  startWaiting(): void {
    for (const queue of this.#inOrder)
      for (const waiting of queue) {
        if (this.#slotFor(waiting.work) === undefined) break;
        const running = this.#start(waiting.work);
        if (running === undefined) continue;
        queue.delete(waiting);
        waiting.start(running);
      }
  }

  /** Lets an operation run on a thread. Returns undefined if no thread is free. */
  #start(work: Work<never>): Running | undefined {
    const slot = this.#slotFor(work);
    if (slot === undefined || this.#atMountLimit(work)) return undefined;
    const returned = Promise.withResolvers<void>();
    const running: Running = {
      work,
      returned,
      ticks: 0,
      isExtra: slot === "extra",
      reject: undefined,
      mount: undefined,
    };
    this.running.add(running);
    return running;
  }

  #slotFor(work: Work<never>): "extra" | "shared" | undefined {
    const kind = classOf(work);
    if (kind === "call" || this.isFull)
      return this.#count(({ isExtra }) => !isExtra) < AT_ONCE.call ? "shared" : undefined;
    const prompt = this.#count((other) => other.ticks < SLOW_TICKS && classOf(other.work) === kind);
    return prompt < AT_ONCE[kind] ? "extra" : undefined;
  }

  #count(isCounted: (running: Running) => boolean): number {
    let count = 0;
    for (const running of this.running) if (isCounted(running)) count += 1;
    return count;
  }

  /**
   * Whether the operation must wait because similar operations on its file system already use as many threads as they
   * may (ALIKE_AT_ONCE). Always false for an operation that follows a path.
   */
  #atMountLimit(work: Work<never>): boolean {
    const kind = classOf(work);
    const limit = ALIKE_AT_ONCE[kind];
    if (work.path !== undefined || this.running.size < limit) return false;
    const isAlike = ({ work: other }: Running): boolean =>
      classOf(other) === kind && other.path === undefined && (kind !== "call" || other.step === work.step);
    // The kernel is asked for the mounts only now, because asking takes longer than a small operation.
    if (this.#count(isAlike) < limit) return false;
    const fileSystem = this.#fileSystemOf(work);
    return this.#count((other) => isAlike(other) && this.#fileSystemOf(other.work) === fileSystem) >= limit;
  }

  /**
   * Returns the file system of an operation on an open descriptor. It is cached for each descriptor, so that the kernel
   * is asked only once.
   */
  #fileSystemOf(work: Work<never>): string | undefined {
    const {
      mount,
      on: [held],
    } = work;
    if (mount !== undefined || held === undefined) return mount?.fileSystem;
    const fileSystem = this.#fileSystems.get(held) ?? mountUnder(work)?.fileSystem;
    if (fileSystem !== undefined) this.#fileSystems.set(held, fileSystem);
    return fileSystem;
  }
}

/**
 * Starts all of libuv's threads now, unless they run already. If they were started later and this failed, for example
 * at the guest's process limit, libuv would abort the agent. Children do not inherit UV_THREADPOOL_SIZE.
 */
export function startFileThreads(): void {
  process.env["UV_THREADPOOL_SIZE"] = String(POOL_THREADS);
  stat("/", () => {});
}
