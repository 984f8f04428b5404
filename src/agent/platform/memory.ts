import { clearUnreferenced } from "../domain/index.ts";
import { garbageCollector } from "../internals/index.ts";
import type { Addon } from "../native/index.ts";
import type { ProgramPages } from "./program-pages.ts";

/** Delay between activity and the check whether the agent is idle. */
const CHECK_AFTER_MS = 10_000;
/** The agent is idle while it uses less than this share of a CPU. */
const IDLE_CPU_SHARE = 0.02;
/**
 * After a snapshot was announced, no memory is freed for this time, or until the next call. Otherwise every clone of
 * the snapshot would soon free the same memory.
 */
const SNAPSHOT_LIMIT_MS = 60_000;
/** Memory is freed only if at least this much was added since the last time, because freeing takes some 20 ms. */
const WORTHWHILE_BYTES: number = 4 * 1024 * 1024;
/**
 * While data is streamed, V8 collects its young generation as soon as it is this full, in percent. With V8's default of
 * 80, V8 would mistake the dead buffers of a stream for growth, and collect the whole heap again and again.
 */
const YOUNG_GENERATION_PERCENT = 25;
/**
 * V8's default for YOUNG_GENERATION_PERCENT, used while no data is streamed. Small calls use little memory, and a lower
 * value makes them a sixth slower, because V8 then collects more often.
 */
const USUAL_YOUNG_GENERATION_PERCENT = 80;
/** Growth of V8's old generation, in percent, after which V8 collects garbage. V8's default permits fourfold growth. */
const OLD_GENERATION_GROWTH_PERCENT = 60;

/**
 * V8 features that are off for the first calls after a restore: compilers, and early collections of the young
 * generation. With them, these calls accessed 940 more pages (decision 0020).
 */
const OPTIMIZERS: readonly string[] = ["sparkplug", "maglev", "turbofan", "minor-gc-task"];
/**
 * Number of calls after a restore before the features in OPTIMIZERS are turned on again. It suffices for the first
 * calls of the node agent, and for a few commands.
 */
const UNOPTIMIZED_CALLS = 32;

/** Keeps the agent's memory small: little garbage while it is busy, none while it is idle. */
export class MemoryKeeper {
  readonly #addon: Pick<Addon, "trimHeap">;
  readonly #checkAfterMs: number;
  readonly #snapshotLimitMs: number;
  readonly #pages: Pick<ProgramPages, "release"> | undefined;
  #calls = 0;
  #collect: ReturnType<typeof garbageCollector> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #cpuAtActivity: NodeJS.CpuUsage | undefined;
  #idleBytes = 0;
  /** Number of calls that were running when memory was last freed. The memory of these calls could not be freed. */
  #callsWhenFreed = 0;
  #isGrowthLimited = false;
  #freedStartPages = false;
  /**
   * After a snapshot: number of calls until the optimizing compilers are enabled again; undefined while they are
   * enabled.
   */
  #unoptimizedLeft: number | undefined;
  /** Whether a snapshot was announced, and no call has arrived since. */
  #awaitsSnapshot = false;

  /** @param pages the pages of the bundle's programs; undefined if the agent does not run from a bundle */
  constructor(
    addon: Pick<Addon, "trimHeap">,
    pages: Pick<ProgramPages, "release"> | undefined,
    checkAfterMs: number = CHECK_AFTER_MS,
    snapshotLimitMs: number = SNAPSHOT_LIMIT_MS,
  ) {
    this.#snapshotLimitMs = snapshotLimitMs;
    this.#addon = addon;
    this.#pages = pages;
    this.#checkAfterMs = checkAfterMs;
  }

  /**
   * Call it when a call begins or ends, with the number of running calls. The beginning counts as activity, too,
   * because a call may leave garbage at its beginning and then go on for hours.
   */
  onCalls(running: number): void {
    const isOver = running < this.#calls;
    if (this.#unoptimizedLeft !== undefined && !isOver && this.#unoptimizedLeft-- === 0) this.#optimize();
    this.#calls = running;
    if (running < this.#callsWhenFreed) this.#recordRest(0, 0);
    // Some time after a collection, other threads of V8 may unmap up to 20 MB, so the idle memory is measured again.
    if (this.#timer === undefined) this.#idleBytes = Math.min(this.#idleBytes, residentBytes());
    if (!isOver && this.#awaitsSnapshot) this.#resume();
    else this.onActivity();
  }

  /**
   * Resumes normal work after a snapshot was announced. Called at the first call afterwards, or when the snapshot was
   * not taken in time.
   */
  #resume(): void {
    clearUnreferenced(this.#timer);
    this.#timer = undefined;
    this.#awaitsSnapshot = false;
    this.onActivity();
  }

  /**
   * Starts the timer for the next memory check. Call it after work of the agent: no other code starts this timer, so
   * that an idle agent is never woken.
   */
  onActivity(): void {
    if (this.#timer !== undefined) return;
    this.#limitGrowth();
    this.#cpuAtActivity = process.cpuUsage();
    this.#timer = setTimeout(() => this.#check(), this.#checkAfterMs);
    this.#timer.unref();
  }

  /**
   * Sets V8's flag for the young generation to the value for large transfers, or back to the usual one. Call it when
   * the first large transfer begins, and when the last one has ended.
   *
   * @param any whether at least one large transfer is running now
   */
  streaming(any: boolean): void {
    this.#optimize();
    const percent = any ? YOUNG_GENERATION_PERCENT : USUAL_YOUNG_GENERATION_PERCENT;
    setFlags([`minor-gc-task-trigger=${percent}`]);
  }

  /**
   * Frees memory before a snapshot, except for memory that the first calls after a restore need. Does nothing if other
   * calls are running. Afterwards no memory is freed until the next call, or until a minute has passed.
   *
   * @param rehearse runs the code that the first calls after a restore will run; never rejects
   */
  async beforeSnapshot(rehearse: () => Promise<void>): Promise<void> {
    if (this.#calls > 1) return;
    setFlags(OPTIMIZERS.map((compiler) => `no-${compiler}`));
    this.#freeGarbage();
    // The pages must be released before the rehearsal. The rehearsal then loads again only those pages that the first
    // calls after a restore need, so that the snapshot contains these pages.
    this.#pages?.release();
    await rehearse();
    // The first call after a restore runs #resume(), so the rehearsal must run it, too. The timer that #resume() starts
    // is stopped below.
    this.#resume();
    // Empties the young generation, so that no collection is needed during the first calls.
    this.#collect?.("minor");
    // From now on, the memory in use counts as the agent's memory when idle. Otherwise the next check would discard the
    // code that the rehearsal has compiled.
    this.#recordRest(residentBytes(), 0);
    this.#unoptimizedLeft = UNOPTIMIZED_CALLS;
    this.#awaitsSnapshot = true;
    clearUnreferenced(this.#timer);
    this.#timer = setTimeout(() => this.#resume(), this.#snapshotLimitMs).unref();
  }

  /**
   * Makes V8 collect the old generation after less growth, which saves memory and CPU time in uploads. The flag is not
   * set at the start, because V8 rejects cached code that was compiled under other flags.
   */
  #limitGrowth(): void {
    if (this.#isGrowthLimited) return;
    this.#isGrowthLimited = true;
    setFlags([`heap-growing-percent=${OLD_GENERATION_GROWTH_PERCENT}`]);
  }

  /** Enables V8's optimizations again. */
  #optimize(): void {
    if (this.#unoptimizedLeft === undefined) return;
    this.#unoptimizedLeft = undefined;
    setFlags(OPTIMIZERS);
  }

  #check(): void {
    this.#timer = undefined;
    // After a snapshot was announced, V8's optimizers must stay off until the first call, because the snapshot may not
    // have been taken yet.
    if (this.#unoptimizedLeft !== UNOPTIMIZED_CALLS) this.#optimize();
    const { user, system } = process.cpuUsage(this.#cpuAtActivity);
    if ((user + system) / 1_000 > this.#checkAfterMs * IDLE_CPU_SHARE) {
      this.onActivity();
      return;
    }
    if (residentBytes() > this.#idleBytes + WORTHWHILE_BYTES) this.#freeGarbage();
    this.#freeStartPages();
  }

  /** Frees garbage and code that V8 has not used lately, and lets the C library return the memory to the kernel. */
  #freeGarbage(): void {
    this.#collect ??= garbageCollector();
    this.#collect("major");
    this.#addon.trimHeap();
    this.#recordRest(residentBytes(), this.#calls);
  }

  #recordRest(bytes: number, calls: number): void {
    this.#idleBytes = bytes;
    this.#callsWhenFreed = calls;
  }

  /**
   * Releases, once, the pages that only the start needed. Does nothing while calls run, because they would load the
   * pages again.
   */
  #freeStartPages(): void {
    if (this.#freedStartPages || this.#calls > 0) return;
    this.#freedStartPages = true;
    this.#pages?.release();
  }
}

function setFlags(flags: readonly string[]): void {
  const { setFlagsFromString } = process.getBuiltinModule("node:v8");
  for (const flag of flags) setFlagsFromString(`--${flag}`);
}

/** Resident memory of the agent. Without /proc, returns the peak, because Node cannot read the current value. */
function residentBytes(): number {
  try {
    return process.memoryUsage.rss();
  } catch {
    return process.resourceUsage().maxRSS * 1024;
  }
}
