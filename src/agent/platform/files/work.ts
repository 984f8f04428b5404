import { stat } from "node:fs";
import { type FileStep, FileSystemError, FileSystemHung, type Mount, Mutex } from "../../domain/index.ts";
import { type Addon, errnoName, failedWith } from "../../native/index.ts";
import { HungMounts, mountOf } from "./mounts.ts";

/** Threads that file calls use at once. */
const THREADS = 3;
/** Threads that may hang in dead file systems. Beyond that many, others no longer replace them. */
const WRITTEN_OFF_LIMIT = 16;
/** All threads of libuv, which starts no more later: one stays free for others (user database, credentials). */
const POOL_THREADS = THREADS + WRITTEN_OFF_LIMIT + 1;
/** Interval of the looks at running operations. Looks count their time: a suspended guest's clock may jump. */
const LOOK_MS = 1_000;
/** Looks after which an operation counts as hung: more than a slow disk takes for half a MiB. */
const LATE_LOOKS = 15;
/** The same for a name of a path whose operation is late already. */
const URGENT_LATE_LOOKS = 2;
/** fsync(2) writes what the kernel has gathered, up to a fifth of the memory, and may be slow without being hung. */
const LATE_SYNC_LOOKS = 600;
const SYNCS: ReadonlySet<FileStep> = new Set(["sync", "sync_folder"]);
/** Slow operations that are waited for at once. Beyond that many, the latest count as hung. */
const SLOW_SYNCS_LIMIT = 8;

/** What an operation works on: a descriptor, which may not be closed before the operation has returned. */
export interface Held {
  readonly fd: number;
  /** Keeps it open. Returns the function that no longer does. */
  hold(): () => void;
}

/** A path that an operation follows, perhaps into a file system that hangs. */
interface FollowedPath {
  /** Throws FileSystemHung if it leads into one that is known to hang. */
  check(): Promise<void>;
  /** The mount that lets an operation on it hang; undefined: not known. Never rejects. */
  locate(): Promise<Mount | undefined>;
}

/** How an operation runs. */
export interface Work<Value> {
  readonly step: FileStep;
  /** What it works on. Unless it follows a path, it waits for the file system of the first of them. */
  readonly on: readonly Held[];
  readonly path?: FollowedPath;
  /** What is mounted at a name in `on` that the operation looks up: that may hang, while its folder does not. */
  readonly mount?: Mount | undefined;
  /** It helps to find what hangs: it starts at once and is late soon, and its thread counts as one that hangs. */
  readonly isUrgent?: boolean;
  /** Called with the result of an operation that returns after it was given up. */
  late?(value: Value): void;
}

/** An operation on a thread. */
interface Running {
  readonly step: FileStep;
  /** Whether what it works on is known to hang. */
  readonly isOnHung: () => boolean;
  /** Finds what hangs, and notes it. */
  readonly locate: () => Promise<Mount | undefined>;
  readonly lateLooks: number;
  readonly returned: Promise<void>;
  readonly reject: (error: FileSystemHung) => void;
  looks: number;
  isWrittenOff: boolean;
  /** Its call fails once what hangs is located. */
  isGivenUp: boolean;
  isLocated: boolean;
}

/** An operation that waits for a thread. */
interface Waiting {
  readonly step: FileStep;
  readonly start: () => void;
  readonly reject: (error: FileSystemHung) => void;
  looks: number;
}

/**
 * The addon, and the threads that file calls may use. An operation waits while all are busy. One that hangs is given
 * up: its call fails, another thread replaces its own, and nothing reuses its memory until it returns.
 */
export class FileWork {
  readonly addon: Addon;
  readonly hung: HungMounts = new HungMounts();
  #free: number = THREADS;
  #writtenOff = 0;
  readonly #running = new Set<Running>();
  readonly #waiting = new Set<Waiting>();
  /** One after another: the first one's result spares the others a thread. */
  readonly #locating = new Mutex();
  #looking: NodeJS.Timeout | undefined;

  constructor(addon: Addon) {
    this.addon = addon;
    startThreads();
  }

  /** Whether more than one operation is running. */
  get busy(): boolean {
    return this.#free < THREADS - 1;
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
    if (hung !== undefined) {
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
    try {
      await this.#enter(work);
    } catch (error) {
      letGo();
      throw error;
    }
    const outcome = Promise.withResolvers<Value>();
    const returned = Promise.withResolvers<void>();
    const running: Running = {
      step: work.step,
      isOnHung: () => work.on.some((held) => this.hung.holding(held.fd) !== undefined),
      locate: () => this.#locate(work, returned.promise),
      lateLooks: work.isUrgent === true ? URGENT_LATE_LOOKS : LATE_LOOKS,
      returned: returned.promise,
      reject: outcome.reject,
      looks: 0,
      isWrittenOff: work.isUrgent === true,
      isGivenUp: false,
      isLocated: false,
    };
    this.#running.add(running);
    this.#look();
    const over = (): void => {
      this.#running.delete(running);
      if (running.isWrittenOff) this.#writtenOff -= 1;
      else this.#leave();
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

  /** Resolves when there is a thread for the operation. */
  async #enter(work: Work<never>): Promise<void> {
    for (;;) {
      if (this.hung.any) await this.#check(work);
      const { added } = this.hung;
      if (work.isUrgent === true) {
        if (this.#writtenOff >= WRITTEN_OFF_LIMIT) throw new FileSystemHung(work.step, undefined, undefined);
        this.#writtenOff += 1;
        return;
      }
      if (this.#free > 0) {
        this.#free -= 1;
        return;
      }
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      this.#waiting.add({ step: work.step, start: resolve, reject, looks: 0 });
      await promise;
      if (added === this.hung.added) return;
      this.#leave();
    }
  }

  async #check({ step, on: [held], path, mount }: Work<never>): Promise<void> {
    if (path !== undefined) return path.check();
    this.refuseHung(step, held);
    const hung = this.hung.find(mount);
    if (hung) throw new FileSystemHung(step, hung.mount, hung.answers);
  }

  /** Gives the thread to the operation that has waited longest. */
  #leave(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free += 1;
      return;
    }
    this.#waiting.delete(next);
    next.start();
  }

  /** Throws FileSystemHung for a descriptor on a file system that hangs. */
  refuseHung(step: FileStep, held: Held | undefined): void {
    const hung = held && this.hung.holding(held.fd);
    if (hung) throw new FileSystemHung(step, hung.mount, hung.answers);
  }

  /** Looks at the operations from time to time while there are any: a timer for each costs as much as a small one. */
  #look(): void {
    this.#looking ??= setInterval(() => {
      for (const running of this.#running) void this.#lookAt(running);
      if (this.#writtenOff >= WRITTEN_OFF_LIMIT) for (const waiting of this.#waiting) this.#lookAtWaiting(waiting);
      if (this.#running.size > 0) return;
      clearInterval(this.#looking);
      this.#looking = undefined;
    }, LOOK_MS).unref();
  }

  async #lookAt(running: Running): Promise<void> {
    running.looks += 1;
    if (running.looks < running.lateLooks) return;
    if (!running.isGivenUp && !this.#isSlow(running)) {
      running.isGivenUp = true;
      // Locate it before the next operation gets its place: that may be about to use the same file system.
      const mount = await running.locate();
      running.isLocated = true;
      running.reject(new FileSystemHung(running.step, mount, running.returned));
    }
    this.#writeOff(running);
  }

  #locate({ on: [held], path, mount }: Work<never>, returned: Promise<void>): Promise<Mount | undefined> {
    const note = (found: Mount | undefined): Mount | undefined => {
      if (found !== undefined) this.hung.add(found, returned);
      return found;
    };
    if (path === undefined) return Promise.resolve(note(mount ?? (held && mountOf(held.fd))));
    return this.#locating.run(async () => note(await path.locate()));
  }

  /** Lets another thread take its place, if one may still be started, now or at a later look. */
  #writeOff(running: Running): void {
    const isDue = running.isLocated || !running.isGivenUp;
    if (!isDue || running.isWrittenOff || !this.#running.has(running) || this.#writtenOff >= WRITTEN_OFF_LIMIT) return;
    running.isWrittenOff = true;
    this.#writtenOff += 1;
    this.#leave();
  }

  /** Whether it may be slow without being hung. */
  #isSlow(running: Running): boolean {
    if (!SYNCS.has(running.step) || running.looks >= LATE_SYNC_LOOKS || running.isOnHung()) return false;
    const syncs = [...this.#running].filter((other) => SYNCS.has(other.step) && !other.isGivenUp);
    return syncs.indexOf(running) < SLOW_SYNCS_LIMIT;
  }

  /** No thread replaces those that hang any more: what waits for one may wait for ever. */
  #lookAtWaiting(waiting: Waiting): void {
    waiting.looks += 1;
    if (waiting.looks < LATE_LOOKS) return;
    this.#waiting.delete(waiting);
    waiting.reject(new FileSystemHung(waiting.step, undefined, undefined));
  }
}

/**
 * Starts all of libuv's threads now: later it would end the process if the guest may have no more processes. Children
 * get the environment from before.
 */
function startThreads(): void {
  process.env["UV_THREADPOOL_SIZE"] = String(POOL_THREADS);
  stat("/", () => {});
}
