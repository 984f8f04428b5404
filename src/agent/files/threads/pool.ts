import { stat } from "node:fs";
import { FileSystemHung } from "../../domain/index.ts";
import { mountOf } from "./mounts.ts";
import { type Holdable, isSync, type Running, type Work } from "./operation.ts";

/** Threads shared by all file operations. */
const SHARED_THREADS = 3;
/** Additional threads: for syncs, for probes, and to replace shared threads whose operation is slow. */
const EXTRA_THREADS = 16;
/** Extra threads reserved for probes. */
const PROBE_THREADS = 1;
/** Size of libuv's pool, which cannot grow later. One thread stays free for other work (user database, credentials). */
const POOL_THREADS = SHARED_THREADS + EXTRA_THREADS + 1;
/** Ticks after which an operation counts as slow. Another operation may then use its shared slot. */
export const SLOW_AFTER_TICKS = 2;
/** Largest number of extra threads for syncs of one file system. Further slow syncs of it count as hung. */
export const SYNCS_AT_ONCE = 8;
/** Largest number of extra threads for slow operations of one kind on one file system. */
const SLOW_AT_ONCE = 4;

export interface Waiting {
  readonly work: Work<never>;
  readonly start: (isExtra: boolean) => void;
  readonly reject: (error: FileSystemHung) => void;
  ticks: number;
}

/**
 * Assigns threads to file operations. Operations wait while all threads are busy. Syncs run on extra threads. A slow
 * operation gives its slot among the shared threads to another operation, and counts as one of the extra threads.
 */
export class ThreadPool {
  /** Operations that occupy a thread. */
  readonly running: Set<Running> = new Set();
  #free: number = SHARED_THREADS;
  #extra = 0;
  /** Number of extra threads that run syncs. */
  #syncing = 0;
  readonly #waitingSyncs = new Set<Waiting>();
  readonly #waitingCalls = new Set<Waiting>();
  readonly #fileSystems = new WeakMap<Holdable, string>();

  constructor() {
    startFileThreads();
  }

  get waiting(): Waiting[] {
    return [...this.#waitingCalls, ...this.#waitingSyncs];
  }

  /**
   * Takes a thread as soon as one is free, and returns whether it is an extra thread. Throws FileSystemHung if no
   * thread will become free. If the operation's signal is aborted before, throws the signal's reason.
   */
  enter(work: Work<never>): boolean | Promise<boolean> {
    return this.#take(work) ?? this.#wait(work);
  }

  /** Waits for a thread. Resolves with true if it is an extra thread. */
  async #wait(work: Work<never>): Promise<boolean> {
    const { signal } = work;
    signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    const waiting: Waiting = { work, start: resolve, reject, ticks: 0 };
    const queue = this.#queueOf(work).add(waiting);
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

  /** Removes a waiting operation from its queue and rejects it with this error. */
  refuse(waiting: Waiting, error: FileSystemHung): void {
    this.#queueOf(waiting.work).delete(waiting);
    waiting.reject(error);
  }

  /** Tries to take a thread: true for an extra one, false for a shared one, undefined if none is free. */
  #take(work: Work<never>): boolean | undefined {
    if (work.isProbe === true) {
      if (this.#extra >= EXTRA_THREADS) throw new FileSystemHung(work.step, undefined, undefined);
    } else if (this.#atMountLimit(work)) return undefined;
    else if (!isSync(work) || !this.hasExtra) {
      if (this.#free === 0) return undefined;
      this.#free -= 1;
      return false;
    }
    this.#extra += 1;
    if (isSync(work)) this.#syncing += 1;
    return true;
  }

  /** Whether an extra thread is free, not counting those that are reserved for probes. */
  get hasExtra(): boolean {
    return this.#extra < EXTRA_THREADS - PROBE_THREADS;
  }

  /** Whether the operation's file system has used up its share of the extra threads. The rest is for other file systems. */
  #atMountLimit(work: Work<never>): boolean {
    const isOfSync = isSync(work);
    const share = isOfSync ? SYNCS_AT_ONCE : SLOW_AT_ONCE;
    if (work.path !== undefined || (isOfSync ? this.#syncing : this.#extra - this.#syncing) < share) return false;
    if (isOfSync && this.#anySyncProgressing()) return true;
    const fileSystem = this.#fileSystemOf(work);
    let alike = 0;
    for (const { isExtra, work: other } of this.running) {
      const isAlike = isOfSync ? isSync(other) : other.step === work.step && other.path === undefined;
      if (isExtra && isAlike && this.#fileSystemOf(other) === fileSystem) alike += 1;
    }
    return alike >= share;
  }

  /**
   * Whether a sync on an extra thread is not slow yet. It will probably release its thread soon, so other syncs wait
   * for it.
   */
  #anySyncProgressing(): boolean {
    for (const { isExtra, ticks: looks, work } of this.running)
      if (isExtra && looks < SLOW_AFTER_TICKS && isSync(work)) return true;
    return false;
  }

  /** The file system of an operation that follows no path. Cached, so that the kernel is asked once per descriptor. */
  #fileSystemOf(work: Work<never>): string | undefined {
    const {
      mount,
      on: [held],
    } = work;
    if (mount !== undefined || held === undefined) return mount?.fileSystem;
    const fileSystem = this.#fileSystems.get(held) ?? mountOf(held.fd)?.fileSystem;
    if (fileSystem !== undefined) this.#fileSystems.set(held, fileSystem);
    return fileSystem;
  }

  #queueOf(work: Work<never>): Set<Waiting> {
    return isSync(work) ? this.#waitingSyncs : this.#waitingCalls;
  }

  /** Returns a thread to the pool and starts the operation that has waited longest. */
  leave(work: Work<never>, isExtra: boolean): void {
    if (!isExtra) this.#free += 1;
    else {
      this.#extra -= 1;
      if (isSync(work)) this.#syncing -= 1;
    }
    this.startNext();
  }

  /** Starts a waiting operation if a thread is free. Returns whether it did. */
  startNext(): boolean {
    if (this.#free > 0 && this.#startFirst(this.#waitingCalls)) return true;
    const isFull = this.#syncing >= SYNCS_AT_ONCE && this.#anySyncProgressing();
    return !isFull && this.#startFirst(this.#waitingSyncs);
  }

  #startFirst(queue: Set<Waiting>): boolean {
    for (const waiting of queue) {
      const taken = this.#take(waiting.work);
      if (taken === undefined) continue;
      queue.delete(waiting);
      waiting.start(taken);
      return true;
    }
    return false;
  }

  /** Releases the shared slot of a slow operation. From then on the operation counts as one of the extra threads. */
  releaseSlot(running: Running): void {
    if (running.isExtra || !this.hasExtra || !this.running.has(running)) return;
    running.isExtra = true;
    this.#extra += 1;
    if (isSync(running.work)) this.#syncing += 1;
    this.#free += 1;
    this.startNext();
  }
}

/**
 * Starts all of libuv's threads now, unless libuv has started its threads already. If it started them later and the
 * guest were at its process limit, libuv would abort the process. Children do not inherit UV_THREADPOOL_SIZE, because
 * they get the environment that the agent was started with.
 */
export function startFileThreads(): void {
  process.env["UV_THREADPOOL_SIZE"] = String(POOL_THREADS);
  stat("/", () => {});
}
