import { type FileStep, FileSystemError, FileSystemHung, type Mount, Mutex, type Timers } from "../../domain/index.ts";
import { type Addon, failedWith } from "../../native/index.ts";
import { HungMounts, mountOf } from "./mounts.ts";
import { isSync, type Holdable, type Running, type Work } from "./operation.ts";
import { failureOf } from "./steps.ts";
import { SLOW_AFTER_TICKS, SYNCS_AT_ONCE, ThreadPool, type Waiting } from "./pool.ts";

/** Interval between two ticks. Operations are timed in ticks, because the clock of a suspended guest jumps. */
const TICK_MS = 500;
/** Ticks after which an operation counts as hung (15 s). A slow disk writes half a MiB, the largest batch, in less time. */
const HUNG_TICKS = 30;
/** Ticks after which a probe counts as hung (2 s). */
const HUNG_PROBE_TICKS = 4;
/**
 * Ticks after which fsync(2) counts as hung (10 min). It writes all dirty pages of a file, which may be a fifth of the
 * guest's memory, so it may take minutes on a slow disk.
 */
const HUNG_SYNC_TICKS = 1_200;
/**
 * Runs file operations on threads and detects hung mounts. A slow operation occupies a shared slot for a second at
 * most; then another operation may use the slot. An operation that hangs is given up: its call fails, but its memory is
 * not reused until the operation returns.
 */
export class FileWork {
  readonly addon: Addon;
  readonly hung: HungMounts = new HungMounts();
  readonly #timers: Timers;
  readonly #pool = new ThreadPool();
  /** Allows only one probe at a time, because the result of a probe often makes the next probe unnecessary. */
  readonly #probing = new Mutex();
  #isTicking = false;

  constructor(addon: Addon, timers: Timers) {
    this.addon = addon;
    this.#timers = timers;
  }

  /** Runs one operation. Turns a failed system call into a FileSystemError. */
  async step<Value>(work: Work<Value>, operation: () => Promise<Value>): Promise<Value> {
    try {
      return await this.#run(work, operation);
    } catch (error) {
      if (error instanceof FileSystemHung) throw error;
      const errno = failedWith(error);
      throw errno === undefined ? error : new FileSystemError(work.step, errno, error);
    }
  }

  /** Runs one addon call, which resolves with a negated errno if it fails. */
  async native(work: Work<number>, job: (addon: Addon) => Promise<number>): Promise<number> {
    const result = await this.step(work, () => job(this.addon));
    if (result < 0) throw failureOf(result, work.step);
    return result;
  }

  /**
   * Runs a clean-up whose failure does not matter. If the file system hangs, the clean-up runs when the file system
   * responds again. Never rejects.
   */
  async attempt(held: Holdable, operation: () => Promise<unknown>): Promise<void> {
    const hung = this.hung.ofDescriptor(held.fd);
    if (hung?.isHung === true) {
      const release = held.hold();
      void hung.answers.then(() => this.attempt(held, operation)).finally(release);
      return;
    }
    await this.#run({ step: "open", on: [held] }, operation).catch(() => undefined);
  }

  async #run<Value>(work: Work<Value>, operation: () => Promise<Value>): Promise<Value> {
    const holds = work.on.map((held) => held.hold());
    const releaseAll = (): void => {
      for (const release of holds) release();
    };
    let isExtra: boolean;
    try {
      isExtra = await this.#enter(work);
    } catch (error) {
      releaseAll();
      throw error;
    }
    const outcome = Promise.withResolvers<Value>();
    const returned = Promise.withResolvers<void>();
    const running: Running = {
      work,
      returned: returned.promise,
      reject: outcome.reject,
      ticks: 0,
      isExtra,
      isDiagnosed: false,
      isAbandoned: false,
      unresponsive: undefined,
    };
    this.#pool.running.add(running);
    this.#scheduleTick();
    const finish = (): void => {
      this.#pool.running.delete(running);
      this.#pool.leave(work, running.isExtra);
      releaseAll();
      returned.resolve();
    };
    // Promise.try is used because an operation that throws synchronously must also release its thread.
    Promise.try(operation).then(
      (value) => {
        if (running.isAbandoned) work.onLateResult?.(value);
        finish();
        outcome.resolve(value);
      },
      (error: unknown) => {
        finish();
        outcome.reject(error);
      },
    );
    return outcome.promise;
  }

  /** Waits for a thread. Resolves with true if it is an extra thread. */
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

  /**
   * Throws FileSystemHung if the operation would enter a file system that hangs. If it would enter one that is slow,
   * waits until that file system responds or is found to hang.
   */
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
      const hung = held && this.hung.ofDescriptor(held.fd);
      if (hung?.isHung === true) this.refuse(step, hung.mount);
      this.refuse(step, mount);
    } catch (error) {
      const silent = error instanceof FileSystemHung && isProbe !== true ? this.hung.ofMount(error.mount) : undefined;
      if (silent === undefined || silent.isHung) throw error;
      await silent.decided;
      await this.#check(work);
    }
  }

  /** Throws FileSystemHung if the mount does not respond. */
  refuse(step: FileStep, mount: Mount | undefined): void {
    const silent = this.hung.ofMount(mount);
    if (silent) throw new FileSystemHung(step, silent.mount, silent.answers);
  }

  /** Schedules the next tick of all operations. A timer per operation would cost as much as a small operation. */
  #scheduleTick(): void {
    if (this.#isTicking) return;
    this.#isTicking = true;
    this.#timers.after(TICK_MS, () => {
      this.#isTicking = false;
      for (const running of this.#pool.running) void this.#tick(running);
      if (!this.#pool.hasExtra) for (const waiting of this.#pool.waiting) this.#tickWaiting(waiting);
      // Syncs that became slow in this tick no longer block syncs of other file systems, so these may now start.
      while (this.#pool.startNext());
      if (this.#pool.running.size > 0) this.#scheduleTick();
    });
  }

  async #tick(running: Running): Promise<void> {
    const { work, returned } = running;
    running.ticks += 1;
    if (running.ticks >= SLOW_AFTER_TICKS) this.#pool.releaseSlot(running);
    if (running.ticks === SLOW_AFTER_TICKS && work.path !== undefined) {
      running.unresponsive = await this.#probe(running, true);
      if (this.#pool.running.has(running)) this.hung.report(running.unresponsive, returned, false);
    }
    const hungTicks = work.isProbe === true ? HUNG_PROBE_TICKS : HUNG_TICKS;
    if (running.ticks < hungTicks || running.isDiagnosed || this.#isSlow(running)) return;
    running.isDiagnosed = true;
    const mount = running.unresponsive ?? (await this.#probe(running, false));
    if (!this.#pool.running.has(running)) return;
    running.isAbandoned = true;
    // An unanswered probe does not prove a hang: a file system that does not answer within 2 s may only be slow.
    if (work.isProbe !== true) this.hung.report(mount, returned, true);
    running.reject(new FileSystemHung(work.step, mount, returned));
  }

  /**
   * Finds the mount that the operation waits for.
   *
   * @param mustBeSilent return only a mount that does not respond, and undefined if the probe resolves the whole path
   */
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

  /** Whether the operation is a sync that may still be slow rather than hung. */
  #isSlow(running: Running): boolean {
    if (!isSync(running.work) || running.ticks >= HUNG_SYNC_TICKS) return false;
    if (running.work.on.some(({ fd }) => this.hung.ofDescriptor(fd)?.isHung === true)) return false;
    const syncs = [...this.#pool.running].filter((other) => isSync(other.work) && !other.isAbandoned);
    return syncs.indexOf(running) < SYNCS_AT_ONCE;
  }

  /** Called while all extra threads are in use. A waiting operation could wait for ever, so it fails after a while. */
  #tickWaiting(waiting: Waiting): void {
    waiting.ticks += 1;
    if (waiting.ticks < (isSync(waiting.work) ? HUNG_SYNC_TICKS : HUNG_TICKS)) return;
    this.#pool.refuse(waiting, new FileSystemHung(waiting.work.step, undefined, undefined));
  }
}

/** The mount of an operation that follows no path. */
function mountUnder({ mount, on: [held] }: Work<never>): Mount | undefined {
  return mount ?? (held && mountOf(held.fd));
}
