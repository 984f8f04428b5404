import { FileSystemError, FileSystemHung, type Timers } from "../../domain/index.ts";
import { type Addon, failedWith } from "../../native/index.ts";
import { HungMounts } from "./mounts.ts";
import { classOf, type Holdable, mountUnder, type Running, SLOW_TICKS, type Work } from "./operation.ts";
import { ThreadPool } from "./pool.ts";
import { failureOf } from "./steps.ts";

/** Interval between two ticks. Operations are timed in ticks, because the clock of a suspended guest jumps. */
const TICK_MS = 500;
/** Ticks after which an operation counts as hung (15 s). A slow disk writes half a MiB, the largest batch, in less time. */
const HUNG_TICKS = 30;
/**
 * Ticks after which an fsync(2) counts as hung (10 min). An fsync writes all dirty pages of a file. These may be a
 * fifth of the guest's memory, so writing them may take minutes on a slow disk.
 */
const HUNG_SYNC_TICKS = 1_200;

/**
 * Runs file operations on threads and detects mounts that hang. If an operation hangs, its call fails. The memory and
 * descriptors of the operation are kept until it returns, because its thread still uses them.
 *
 * Any mount on a path may hang. So if an operation on a path is slow, the agent looks up the names of the path one by
 * one. The mount at which these lookups stop is the one that the operation waits for.
 *
 * While a mount hangs or a lookup is slow, the agent looks up the names of every path one by one before it uses the
 * path. It stops before a mount that hangs, so that no further operation enters this mount.
 */
export class FileWork {
  readonly addon: Addon;
  readonly #timers: Timers;
  readonly #pool = new ThreadPool();
  readonly #hung = new HungMounts();
  #slowLookups = 0;
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
    const work: Work<unknown> = { step: "open", on: [held] };
    const hung = this.#hung.any ? this.#hung.of(mountUnder(work)) : undefined;
    if (hung !== undefined) {
      const release = held.hold();
      void hung.answers.promise.then(() => this.attempt(held, operation)).finally(release);
      return;
    }
    await this.#run(work, operation).catch(() => undefined);
  }

  async #run<Value>(work: Work<Value>, operation: () => Promise<Value>): Promise<Value> {
    const holds = work.on.map((held) => held.hold());
    const releaseAll = (): void => {
      for (const release of holds) release();
    };
    let running: Running;
    try {
      running = await this.#enter(work);
    } catch (error) {
      releaseAll();
      throw error;
    }
    const outcome = Promise.withResolvers<Value>();
    running.reject = outcome.reject;
    this.#scheduleTick();
    const finish = (): void => {
      if (isSlowLookup(running)) this.#slowLookups -= 1;
      this.#pool.leave(running);
      releaseAll();
      running.returned.resolve();
    };
    // Promise.try is used because an operation that throws synchronously must also release its thread.
    Promise.try(operation).then(
      (value) => {
        if (running.reject === undefined) work.onLateResult?.(value);
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

  async #enter(work: Work<never>): Promise<Running> {
    for (;;) {
      if (this.#hung.any || this.#slowLookups > 0) await this.#check(work);
      const entered = this.#pool.enter(work);
      const running = entered instanceof Promise ? await entered : entered;
      if (running !== undefined) return running;
    }
  }

  /** Throws FileSystemHung if the operation would enter a file system that hangs. */
  async #check(work: Work<never>): Promise<void> {
    const hung = this.#hung.of(mountUnder(work));
    if (hung !== undefined) throw new FileSystemHung(work.step, hung.mount, hung.answers.promise);
    await work.path?.walk();
  }

  /** Schedules the next check of all operations. A timer for each operation would cost as much as a small operation. */
  #scheduleTick(): void {
    if (this.#isTicking) return;
    this.#isTicking = true;
    this.#timers.after(TICK_MS, () => {
      this.#isTicking = false;
      for (const running of this.#pool.running) this.#tick(running);
      if (this.#pool.isFull)
        for (const waiting of this.#pool.waiting) {
          waiting.ticks += 1;
          // Without this limit, the operation would wait forever if operations that hang occupy all threads.
          if (waiting.ticks >= this.#limitOf(waiting.work))
            this.#pool.refuse(waiting, new FileSystemHung(waiting.work.step, undefined, undefined));
        }
      if (this.#pool.running.size > 0) this.#scheduleTick();
    });
  }

  #tick(running: Running): void {
    running.ticks += 1;
    if (running.ticks === SLOW_TICKS) this.#becomeSlow(running);
    if (running.ticks >= SLOW_TICKS) this.#pool.releaseSlot(running);
    if (running.ticks >= this.#limitOf(running.work)) this.#giveUp(running);
  }

  #becomeSlow(running: Running): void {
    const { work } = running;
    if (work.path === undefined) running.mount = mountUnder(work);
    void work.path?.walk((lookup) => (running.mount = mountUnder(lookup))).catch(() => undefined);
    if (!isSlowLookup(running)) return;
    this.#slowLookups += 1;
    if (this.#slowLookups === 1) this.#pool.recheck();
  }

  #limitOf(work: Work<never>): number {
    // A sync may write many pages, so its limit is longer. If its file system is already known to hang, the usual limit
    // applies.
    const mayBeSlow = classOf(work) === "sync" && !(this.#hung.any && this.#hung.of(mountUnder(work)));
    return mayBeSlow ? HUNG_SYNC_TICKS : HUNG_TICKS;
  }

  #giveUp(running: Running): void {
    const { work, mount, reject, returned } = running;
    if (reject === undefined) return;
    running.reject = undefined;
    reject(new FileSystemHung(work.step, mount, returned.promise));
    if (mount === undefined) return;
    this.#hung.add(mount, returned.promise);
    this.#pool.recheck();
  }
}

function isSlowLookup({ work, ticks }: Running): boolean {
  return work.isLookup === true && ticks >= SLOW_TICKS;
}
