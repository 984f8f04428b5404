import { stat } from "node:fs";
import { FileSystemHung } from "../../domain/index.ts";
import { mountOf } from "./mounts.ts";
import { type Held, isSync, type Running, type Work } from "./operation.ts";

/** Threads that file calls share. */
const SHARED_THREADS = 3;
/** More threads: for syncs, for probes, and in place of shared ones whose operation is late. */
const EXTRA_THREADS = 16;
/** Extra threads that only probes get. */
const PROBE_THREADS = 1;
/** All threads of libuv, which starts no more later: one stays free for others (user database, credentials). */
const POOL_THREADS = SHARED_THREADS + EXTRA_THREADS + 1;
/** Looks after which an operation is late: another one gets its shared thread. */
export const LATE_LOOKS = 2;
/** Extra threads that syncs of one file system use. Beyond that many in all, a slow one counts as hung. */
export const SYNCS_AT_ONCE = 8;
/** Extra threads that late operations of one kind on one file system use before the next ones wait for them. */
const LATE_AT_ONCE = 4;

/** An operation that waits for a thread. */
export interface Waiting {
  readonly work: Work<never>;
  readonly start: (isExtra: boolean) => void;
  readonly reject: (error: FileSystemHung) => void;
  looks: number;
}

/**
 * The threads that file calls may use, and who gets one. An operation waits while all are busy. Syncs have threads of
 * their own, and the thread of an operation that is late is lent to another.
 */
export class ThreadPool {
  /** Operations on its threads. */
  readonly running: Set<Running> = new Set();
  #free: number = SHARED_THREADS;
  #extra = 0;
  /** Of the extra threads, those of syncs. */
  #syncing = 0;
  readonly #waitingSyncs = new Set<Waiting>();
  readonly #waitingCalls = new Set<Waiting>();
  readonly #fileSystems = new WeakMap<Held, string>();

  constructor() {
    startFileThreads();
  }

  /** Operations that wait for a thread. */
  get waiting(): Waiting[] {
    return [...this.#waitingCalls, ...this.#waitingSyncs];
  }

  /**
   * Whether its thread is an extra one, now or as soon as there is one. Throws FileSystemHung where it gets none, and
   * the reason of its signal.
   */
  enter(work: Work<never>): boolean | Promise<boolean> {
    return this.#take(work) ?? this.#turnOf(work);
  }

  /** Waits for a thread: whether it is an extra one. */
  async #turnOf(work: Work<never>): Promise<boolean> {
    const { signal } = work;
    signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    const waiting: Waiting = { work, start: resolve, reject, looks: 0 };
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

  /** Lets an operation wait no longer. */
  refuse(waiting: Waiting, error: FileSystemHung): void {
    this.#queueOf(waiting.work).delete(waiting);
    waiting.reject(error);
  }

  /** Takes a thread: whether it is an extra one. Undefined: there is none now. */
  #take(work: Work<never>): boolean | undefined {
    if (work.isProbe === true) {
      if (this.#extra >= EXTRA_THREADS) throw new FileSystemHung(work.step, undefined, undefined);
    } else if (this.#isCrowded(work)) return undefined;
    else if (!isSync(work) || !this.hasExtra) {
      if (this.#free === 0) return undefined;
      this.#free -= 1;
      return false;
    }
    this.#extra += 1;
    if (isSync(work)) this.#syncing += 1;
    return true;
  }

  /** An extra thread is free, beside those of probes. */
  get hasExtra(): boolean {
    return this.#extra < EXTRA_THREADS - PROBE_THREADS;
  }

  /** Whether its file system has its share of the extra threads for such operations: others need some, too. */
  #isCrowded(work: Work<never>): boolean {
    const isOfSync = isSync(work);
    const share = isOfSync ? SYNCS_AT_ONCE : LATE_AT_ONCE;
    if (work.path !== undefined || (isOfSync ? this.#syncing : this.#extra - this.#syncing) < share) return false;
    if (isOfSync && this.#syncsMove()) return true;
    const fileSystem = this.#fileSystemOf(work);
    let alike = 0;
    for (const { isExtra, work: other } of this.running) {
      const isAlike = isOfSync ? isSync(other) : other.step === work.step && other.path === undefined;
      if (isExtra && isAlike && this.#fileSystemOf(other) === fileSystem) alike += 1;
    }
    return alike >= share;
  }

  /** Whether one of the syncs is not late: then the next one's turn will come, whatever its file system. */
  #syncsMove(): boolean {
    for (const { isExtra, looks, work } of this.running) if (isExtra && looks < LATE_LOOKS && isSync(work)) return true;
    return false;
  }

  /** Where an operation that follows no path waits. Asks the kernel once for each descriptor. */
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

  /** Gives a thread back, to the operation that has waited longest of those that may have it. */
  leave(work: Work<never>, isExtra: boolean): void {
    if (!isExtra) this.#free += 1;
    else {
      this.#extra -= 1;
      if (isSync(work)) this.#syncing -= 1;
    }
    this.startNext();
  }

  /** Starts one that waits, if one may. Whether it did. */
  startNext(): boolean {
    if (this.#free > 0 && this.#startFirst(this.#waitingCalls)) return true;
    const isFull = this.#syncing >= SYNCS_AT_ONCE && this.#syncsMove();
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

  /** Lets another operation have its shared thread, now or at a later look. */
  lend(running: Running): void {
    if (running.isExtra || !this.hasExtra || !this.running.has(running)) return;
    running.isExtra = true;
    this.#extra += 1;
    if (isSync(running.work)) this.#syncing += 1;
    this.#free += 1;
    this.startNext();
  }
}

/**
 * Starts all of libuv's threads now, unless it has started any: later it would end the process if the guest may have no
 * more processes. Children get the environment from before.
 */
export function startFileThreads(): void {
  process.env["UV_THREADPOOL_SIZE"] = String(POOL_THREADS);
  stat("/", () => {});
}
