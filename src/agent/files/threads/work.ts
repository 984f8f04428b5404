import { type FileStep, FileSystemError, FileSystemHung, type Mount, Mutex, type Timers } from "../../domain/index.ts";
import { type Addon, failedWith } from "../../native/index.ts";
import { HungMounts, mountOf } from "./mounts.ts";
import { isSync, type Held, type Running, type Work } from "./operation.ts";
import { failureOf } from "./steps.ts";
import { LATE_LOOKS, SYNCS_AT_ONCE, ThreadPool, type Waiting } from "./pool.ts";

/** Interval of the looks at running operations. Looks count their time: a suspended guest's clock may jump. */
const LOOK_MS = 500;
/** Looks after which it counts as hung: more than a slow disk takes for half a MiB. */
const HUNG_LOOKS = 30;
/** The same for a probe. */
const HUNG_PROBE_LOOKS = 4;
/** fsync(2) writes what the kernel has gathered, up to a fifth of the memory, and may be slow without being hung. */
const HUNG_SYNC_LOOKS = 1_200;
/**
 * Runs file operations on threads, and judges those that are late: a slow disk and a dead mount hold up others for a
 * second at most, as the thread is lent on. One that hangs is given up: its call fails, and nothing reuses its memory
 * until it returns.
 */
export class FileWork {
  readonly addon: Addon;
  readonly hung: HungMounts = new HungMounts();
  readonly #timers: Timers;
  readonly #pool = new ThreadPool();
  /** One after another: the first one's result spares the others a thread. */
  readonly #probing = new Mutex();
  #isLooking = false;

  constructor(addon: Addon, timers: Timers) {
    this.addon = addon;
    this.#timers = timers;
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
    if (result < 0) throw failureOf(result, work.step);
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
    this.#pool.running.add(running);
    this.#look();
    const over = (): void => {
      this.#pool.running.delete(running);
      this.#pool.leave(work, running.isExtra);
      letGo();
      returned.resolve();
    };
    // An operation that throws gives its thread back, too.
    Promise.try(operation).then(
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
      const taken = this.#pool.enter(work);
      const isExtra = typeof taken === "boolean" ? taken : await taken;
      if (found === this.hung.found) return isExtra;
      this.#pool.leave(work, isExtra);
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

  /** Looks at the operations from time to time while there are any: a timer for each costs as much as a small one. */
  #look(): void {
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#timers.after(LOOK_MS, () => {
      this.#isLooking = false;
      for (const running of this.#pool.running) void this.#lookAt(running);
      if (!this.#pool.hasExtra) for (const waiting of this.#pool.waiting) this.#lookAtWaiting(waiting);
      // Syncs that have become late hold up their own file system only.
      while (this.#pool.startNext());
      if (this.#pool.running.size > 0) this.#look();
    });
  }

  async #lookAt(running: Running): Promise<void> {
    const { work, returned } = running;
    running.looks += 1;
    if (running.looks >= LATE_LOOKS) this.#pool.lend(running);
    if (running.looks === LATE_LOOKS && work.path !== undefined) {
      running.silent = await this.#probe(running, true);
      if (this.#pool.running.has(running)) this.hung.note(running.silent, returned, false);
    }
    const hungLooks = work.isProbe === true ? HUNG_PROBE_LOOKS : HUNG_LOOKS;
    if (running.looks < hungLooks || running.isJudged || this.#isSlow(running)) return;
    running.isJudged = true;
    const mount = running.silent ?? (await this.#probe(running, false));
    if (!this.#pool.running.has(running)) return;
    running.isGivenUp = true;
    // What a probe finds to be silent may be slow.
    if (work.isProbe !== true) this.hung.note(mount, returned, true);
    running.reject(new FileSystemHung(work.step, mount, returned));
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
    if (!isSync(running.work) || running.looks >= HUNG_SYNC_LOOKS) return false;
    if (running.work.on.some(({ fd }) => this.hung.holding(fd)?.isHung === true)) return false;
    const syncs = [...this.#pool.running].filter((other) => isSync(other.work) && !other.isGivenUp);
    return syncs.indexOf(running) < SYNCS_AT_ONCE;
  }

  /** No thread replaces those that hang any more: what waits for one may wait for ever. */
  #lookAtWaiting(waiting: Waiting): void {
    waiting.looks += 1;
    if (waiting.looks < (isSync(waiting.work) ? HUNG_SYNC_LOOKS : HUNG_LOOKS)) return;
    this.#pool.refuse(waiting, new FileSystemHung(waiting.work.step, undefined, undefined));
  }
}

/** What is mounted where an operation waits, unless it follows a path. */
function mountUnder({ mount, on: [held] }: Work<never>): Mount | undefined {
  return mount ?? (held && mountOf(held.fd));
}
