import { type FileStep, FileSystemError, FileSystemHung, type Mount, Mutex, type Timers } from "../../domain/index.ts";
import { type Addon, errnoName, failedWith } from "../../native/index.ts";
import { HungMounts, mountOf } from "./mounts.ts";
import { EXTRA_THREADS, PROBE_THREADS, SHARED_THREADS, startThreads } from "./pool.ts";

/** Interval of the looks at running operations. Looks count their time: a suspended guest's clock may jump. */
const LOOK_MS = 500;
/** Looks after which an operation is late: another one gets its shared thread. */
const LATE_LOOKS = 2;
/** Looks after which it counts as hung: more than a slow disk takes for half a MiB. */
const HUNG_LOOKS = 30;
/** The same for a probe. */
const HUNG_PROBE_LOOKS = 4;
/** fsync(2) writes what the kernel has gathered, up to a fifth of the memory, and may be slow without being hung. */
const HUNG_SYNC_LOOKS = 1_200;
const SYNCS: ReadonlySet<FileStep> = new Set(["sync", "sync_folder"]);
/** Extra threads that syncs of one file system use. Beyond that many in all, a slow one counts as hung. */
const SYNCS_AT_ONCE = 8;
/** Extra threads that late operations of one kind on one file system use before the next ones wait for them. */
const LATE_AT_ONCE = 4;

/** What an operation works on: a descriptor, which may not be closed before the operation has returned. */
export interface Held {
  readonly fd: number;
  /** Keeps it open. Returns the function that no longer does. */
  hold(): () => void;
}

/** A path that an operation follows, perhaps into a file system that hangs. */
interface FollowedPath {
  /**
   * Looks its names up, one after another. Resolves with the mount where it ends. Throws FileSystemHung before a file
   * system that is silent, and where a probe finds one.
   */
  walk(isProbe: boolean): Promise<Mount | undefined>;
}

/** How an operation runs. */
export interface Work<Value> {
  readonly step: FileStep;
  /** What it works on. Unless it follows a path, it waits for the file system of the first of them. */
  readonly on: readonly Held[];
  readonly path?: FollowedPath;
  /** What is mounted at a name in `on` that the operation looks up: that may hang, while its folder does not. */
  readonly mount?: Mount | undefined;
  /** Aborted while the operation waits for a thread, it waits no more. Its reason is thrown. */
  readonly signal?: AbortSignal | undefined;
  /** It helps to find what hangs: it waits for no thread, and counts as hung after 2 s. */
  readonly isProbe?: boolean;
  /** Called with the result of an operation that returns after it was given up. */
  late?(value: Value): void;
}

/** An operation on a thread. */
interface Running {
  readonly work: Work<never>;
  readonly returned: Promise<void>;
  readonly reject: (error: FileSystemHung) => void;
  looks: number;
  /** On an extra thread, from the start or since it was late. */
  isExtra: boolean;
  /** Its call fails once the mount is found on which it waits. */
  isJudged: boolean;
  isGivenUp: boolean;
  /** The silent mount, once a probe has found it. */
  silent: Mount | undefined;
}

/** An operation that waits for a thread. */
interface Waiting {
  readonly work: Work<never>;
  readonly start: (isExtra: boolean) => void;
  readonly reject: (error: FileSystemHung) => void;
  looks: number;
}

/**
 * The addon, and the threads that file calls may use. An operation waits while all are busy. Syncs have threads of
 * their own, and the thread of an operation that is late is replaced: a slow disk and a dead mount hold up others for a
 * second at most. One that hangs is given up: its call fails, and nothing reuses its memory until it returns.
 */
export class FileWork {
  readonly addon: Addon;
  readonly hung: HungMounts = new HungMounts();
  readonly #timers: Timers;
  #free: number = SHARED_THREADS;
  #extra = 0;
  readonly #running = new Set<Running>();
  /** Of the extra threads, those of syncs. */
  #syncing = 0;
  readonly #waitingSyncs = new Set<Waiting>();
  readonly #waitingCalls = new Set<Waiting>();
  readonly #fileSystems = new WeakMap<Held, string>();
  /** One after another: the first one's result spares the others a thread. */
  readonly #probing = new Mutex();
  #isLooking = false;

  constructor(addon: Addon, timers: Timers) {
    this.addon = addon;
    this.#timers = timers;
    startThreads();
  }

  /** Runs one step. Turns a failed system call into a FileSystemError. */
  async step<Value>(work: Work<Value>, operation: () => Promise<Value>): Promise<Value> {
    try {
      return await this.#run(work, operation);
    } catch (error) {
      if (error instanceof FileSystemHung) throw error;
      const errno = failedWith(error);
      throw errno === undefined ? error : new FileSystemError(work.step, errno, error);
    }
  }

  /** Runs one step in the addon, which resolves with a negated errno where it fails. */
  async native(work: Work<number>, job: (addon: Addon) => Promise<number>): Promise<number> {
    const result = await this.step(work, () => job(this.addon));
    if (result < 0) throw new FileSystemError(work.step, errnoName(result));
    return result;
  }

  /** Runs a clean-up whose failure does not matter; if its file system hangs, when that answers. Never rejects. */
  async attempt(held: Held, operation: () => Promise<unknown>): Promise<void> {
    const hung = this.hung.holding(held.fd);
    if (hung?.isHung === true) {
      const letGo = held.hold();
      void hung.answers.then(() => this.attempt(held, operation)).finally(letGo);
      return;
    }
    await this.#run({ step: "open", on: [held] }, operation).catch(() => undefined);
  }

  async #run<Value>(work: Work<Value>, operation: () => Promise<Value>): Promise<Value> {
    const holds = work.on.map((held) => held.hold());
    const letGo = (): void => {
      for (const release of holds) release();
    };
    let isExtra: boolean;
    try {
      isExtra = await this.#enter(work);
    } catch (error) {
      letGo();
      throw error;
    }
    const outcome = Promise.withResolvers<Value>();
    const returned = Promise.withResolvers<void>();
    const running: Running = {
      work,
      returned: returned.promise,
      reject: outcome.reject,
      looks: 0,
      isExtra,
      isJudged: false,
      isGivenUp: false,
      silent: undefined,
    };
    this.#running.add(running);
    this.#look();
    const over = (): void => {
      this.#running.delete(running);
      this.#leave(work, running.isExtra);
      letGo();
      returned.resolve();
    };
    operation().then(
      (value) => {
        if (running.isGivenUp) work.late?.(value);
        over();
        outcome.resolve(value);
      },
      (error: unknown) => {
        over();
        outcome.reject(error);
      },
    );
    return outcome.promise;
  }

  /** Resolves when there is a thread for the operation: whether it is an extra one. */
  async #enter(work: Work<never>): Promise<boolean> {
    for (;;) {
      if (this.hung.any) await this.#check(work);
      const { found } = this.hung;
      const isExtra = this.#take(work) ?? (await this.#turnOf(work));
      if (found === this.hung.found) return isExtra;
      this.#leave(work, isExtra);
    }
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

  /** Throws FileSystemHung where the operation leads into a file system that hangs; waits for one that may. */
  async #check(work: Work<never>): Promise<void> {
    const {
      step,
      on: [held],
      path,
      mount,
      isProbe,
    } = work;
    try {
      if (path !== undefined) return void (await path.walk(false));
      const hung = held && this.hung.holding(held.fd);
      if (hung?.isHung === true) this.refuse(step, hung.mount);
      this.refuse(step, mount);
    } catch (error) {
      const silent = error instanceof FileSystemHung && isProbe !== true ? this.hung.find(error.mount) : undefined;
      if (silent === undefined || silent.isHung) throw error;
      await silent.decided;
      await this.#check(work);
    }
  }

  /** Throws FileSystemHung for a mount that is silent. */
  refuse(step: FileStep, mount: Mount | undefined): void {
    const silent = this.hung.find(mount);
    if (silent) throw new FileSystemHung(step, silent.mount, silent.answers);
  }

  /** Takes a thread: whether it is an extra one. Undefined: there is none now. */
  #take(work: Work<never>): boolean | undefined {
    if (work.isProbe === true) {
      if (this.#extra >= EXTRA_THREADS) throw new FileSystemHung(work.step, undefined, undefined);
    } else if (this.#isCrowded(work)) return undefined;
    else if (!SYNCS.has(work.step) || !this.#hasExtra) {
      if (this.#free === 0) return undefined;
      this.#free -= 1;
      return false;
    }
    this.#extra += 1;
    if (SYNCS.has(work.step)) this.#syncing += 1;
    return true;
  }

  get #hasExtra(): boolean {
    return this.#extra < EXTRA_THREADS - PROBE_THREADS;
  }

  /** Whether its file system has its share of the extra threads for such operations: others need some, too. */
  #isCrowded(work: Work<never>): boolean {
    const isSync = SYNCS.has(work.step);
    const share = isSync ? SYNCS_AT_ONCE : LATE_AT_ONCE;
    if (work.path !== undefined || (isSync ? this.#syncing : this.#extra - this.#syncing) < share) return false;
    if (isSync && this.#syncsMove()) return true;
    const fileSystem = this.#fileSystemOf(work);
    let alike = 0;
    for (const { isExtra, work: other } of this.#running) {
      const isAlike = isSync ? SYNCS.has(other.step) : other.step === work.step && other.path === undefined;
      if (isExtra && isAlike && this.#fileSystemOf(other) === fileSystem) alike += 1;
    }
    return alike >= share;
  }

  /** Whether one of the syncs is not late: then the next one's turn will come, whatever its file system. */
  #syncsMove(): boolean {
    for (const { isExtra, looks, work } of this.#running)
      if (isExtra && looks < LATE_LOOKS && SYNCS.has(work.step)) return true;
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

  #queueOf({ step }: Work<never>): Set<Waiting> {
    return SYNCS.has(step) ? this.#waitingSyncs : this.#waitingCalls;
  }

  /** Gives a thread back, to the operation that has waited longest of those that may have it. */
  #leave(work: Work<never>, isExtra: boolean): void {
    if (!isExtra) this.#free += 1;
    else {
      this.#extra -= 1;
      if (SYNCS.has(work.step)) this.#syncing -= 1;
    }
    this.#startNext();
  }

  /** Starts one that waits, if one may. Whether it did. */
  #startNext(): boolean {
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

  /** Looks at the operations from time to time while there are any: a timer for each costs as much as a small one. */
  #look(): void {
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#timers.after(LOOK_MS, () => {
      this.#isLooking = false;
      for (const running of this.#running) void this.#lookAt(running);
      if (!this.#hasExtra)
        for (const waiting of [...this.#waitingCalls, ...this.#waitingSyncs]) this.#lookAtWaiting(waiting);
      // Syncs that have become late hold up their own file system only.
      while (this.#startNext());
      if (this.#running.size > 0) this.#look();
    });
  }

  async #lookAt(running: Running): Promise<void> {
    const { work, returned } = running;
    running.looks += 1;
    if (running.looks >= LATE_LOOKS) this.#lend(running);
    if (running.looks === LATE_LOOKS && work.path !== undefined) {
      running.silent = await this.#probe(running, true);
      if (this.#running.has(running)) this.hung.note(running.silent, returned, false);
    }
    const hungLooks = work.isProbe === true ? HUNG_PROBE_LOOKS : HUNG_LOOKS;
    if (running.looks < hungLooks || running.isJudged || this.#isSlow(running)) return;
    running.isJudged = true;
    const mount = running.silent ?? (await this.#probe(running, false));
    if (!this.#running.has(running)) return;
    running.isGivenUp = true;
    // What a probe finds to be silent may be slow.
    if (work.isProbe !== true) this.hung.note(mount, returned, true);
    running.reject(new FileSystemHung(work.step, mount, returned));
  }

  /** Lets another operation have its shared thread, now or at a later look. */
  #lend(running: Running): void {
    if (running.isExtra || !this.#hasExtra || !this.#running.has(running)) return;
    running.isExtra = true;
    this.#extra += 1;
    if (SYNCS.has(running.work.step)) this.#syncing += 1;
    this.#free += 1;
    this.#startNext();
  }

  /** The mount on which it waits. @param mustBeSilent undefined where the probe of a path came through to its end */
  #probe({ work }: Running, mustBeSilent: boolean): Promise<Mount | undefined> {
    const { path } = work;
    if (path === undefined) return Promise.resolve(mountUnder(work));
    return this.#probing.run(async () => {
      try {
        const end = await path.walk(true);
        return mustBeSilent ? undefined : end;
      } catch (error) {
        return error instanceof FileSystemHung ? error.mount : undefined;
      }
    });
  }

  /** Whether it may be slow without being hung. */
  #isSlow(running: Running): boolean {
    const isSync = ({ work }: Running): boolean => SYNCS.has(work.step);
    if (!isSync(running) || running.looks >= HUNG_SYNC_LOOKS) return false;
    if (running.work.on.some(({ fd }) => this.hung.holding(fd)?.isHung === true)) return false;
    const syncs = [...this.#running].filter((other) => isSync(other) && !other.isGivenUp);
    return syncs.indexOf(running) < SYNCS_AT_ONCE;
  }

  /** No thread replaces those that hang any more: what waits for one may wait for ever. */
  #lookAtWaiting(waiting: Waiting): void {
    waiting.looks += 1;
    if (waiting.looks < (SYNCS.has(waiting.work.step) ? HUNG_SYNC_LOOKS : HUNG_LOOKS)) return;
    this.#queueOf(waiting.work).delete(waiting);
    waiting.reject(new FileSystemHung(waiting.work.step, undefined, undefined));
  }
}

/** What is mounted where an operation waits, unless it follows a path. */
function mountUnder({ mount, on: [held] }: Work<never>): Mount | undefined {
  return mount ?? (held && mountOf(held.fd));
}
