import { garbageCollector } from "../internals/index.ts";
import type { Addon } from "../native/index.ts";
import type { ProgramPages } from "./program-pages.ts";

/** Time from work to the check whether the agent is at rest. */
const LOOK_AFTER_MS = 10_000;
/** Below this share of one CPU the agent is at rest. */
const REST_CPU_SHARE = 0.02;
/** After a snapshot was announced nothing is given back for so long, or until a call: each clone would do it. */
const SNAPSHOT_LIMIT_MS = 60_000;
/** Giving memory back takes some 20 ms; for less than this it is not worth it. */
const WORTHWHILE_BYTES: number = 4 * 1024 * 1024;
/**
 * How full V8's young generation may be, in percent, before V8 collects it when idle. The chunks of a stream are small
 * objects that own much larger memory. At V8's default of 80 so much of that is dead that V8 takes it for growth, and
 * collects the whole heap again and again.
 */
const YOUNG_GENERATION_PERCENT = 25;
/** V8's default. Small calls own little memory, and collecting more often would make them a sixth slower. */
const USUAL_YOUNG_GENERATION_PERCENT = 80;
/** Growth of the old generation before V8 collects it. By default it could become four times as large. */
const OLD_GENERATION_GROWTH_PERCENT = 60;

/**
 * What of V8 only saves time or memory later: the compilers, and collections of a young generation that is not full.
 * Without it the first calls touch 940 pages less (decision 0020).
 */
const OPTIMIZERS: readonly string[] = ["sparkplug", "maglev", "turbofan", "minor-gc-task"];
/** Calls after a restore that do without them: the node's own, and a few commands. */
const UNOPTIMIZED_CALLS = 32;

/** Keeps the agent's memory small: little garbage while it works, none at rest. */
export class MemoryKeeper {
  readonly #addon: Pick<Addon, "trimHeap">;
  readonly #lookAfterMs: number;
  readonly #snapshotLimitMs: number;
  readonly #pages: Pick<ProgramPages, "giveBack"> | undefined;
  #calls = 0;
  #collect: ReturnType<typeof garbageCollector> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #cpuAtWork: NodeJS.CpuUsage | undefined;
  #atRestBytes = 0;
  /** Calls that ran when memory was given back last: it could not have what they held. */
  #callsAtRest = 0;
  #growsSlowly = false;
  #hasRested = false;
  /** Calls until the optimizing compilers work again, after a snapshot was announced; undefined: they work. */
  #unoptimizedLeft: number | undefined;
  /** A snapshot was announced, and no call has come since. */
  #awaitsSnapshot = false;

  /** @param pages of the bundle's programs; undefined: the agent does not run from a bundle */
  constructor(
    addon: Pick<Addon, "trimHeap">,
    pages: Pick<ProgramPages, "giveBack"> | undefined,
    lookAfterMs: number = LOOK_AFTER_MS,
    snapshotLimitMs: number = SNAPSHOT_LIMIT_MS,
  ) {
    this.#snapshotLimitMs = snapshotLimitMs;
    this.#addon = addon;
    this.#pages = pages;
    this.#lookAfterMs = lookAfterMs;
  }

  /** Call it when a call begins or ends, with the number of calls that run. */
  calls(running: number): void {
    const isOver = running < this.#calls;
    if (this.#unoptimizedLeft !== undefined && !isOver && this.#unoptimizedLeft-- === 0) this.#optimize();
    this.#calls = running;
    if (running < this.#callsAtRest) this.#rested(0, 0);
    // V8 unmaps on other threads, up to 20 MB later than it has collected.
    if (this.#timer === undefined) this.#atRestBytes = Math.min(this.#atRestBytes, residentBytes());
    if (isOver) this.worked();
    else if (this.#awaitsSnapshot) this.#goOn();
  }

  /** A call has come since a snapshot was announced, or no snapshot was taken. */
  #goOn(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#awaitsSnapshot = false;
    this.worked();
  }

  /** Call it after work. Without work there is no timer that wakes the agent. */
  worked(): void {
    if (this.#timer !== undefined) return;
    this.#growSlowly();
    this.#cpuAtWork = process.cpuUsage();
    this.#timer = setTimeout(() => this.#look(), this.#lookAfterMs);
    this.#timer.unref();
  }

  /** Call it when large transfers begin, and when the last has ended. */
  streaming(any: boolean): void {
    this.#optimize();
    const percent = any ? YOUNG_GENERATION_PERCENT : USUAL_YOUNG_GENERATION_PERCENT;
    setFlags([`minor-gc-task-trigger=${percent}`]);
  }

  /**
   * Gives back all possible memory before a snapshot, except what the first calls after a restore need: they read it
   * from the snapshot. Does nothing while other calls run than the one that announces the snapshot. From then on
   * nothing is done before the next call, or for a minute.
   *
   * @param rehearse runs once what such calls run. Never rejects
   */
  async beforeSnapshot(rehearse: () => Promise<void>): Promise<void> {
    if (this.#calls > 1) return;
    setFlags(OPTIMIZERS.map((compiler) => `no-${compiler}`));
    this.#giveBackGarbage();
    // Before the rehearsal: what is mapped then is mapped in the clones, too.
    this.#pages?.giveBack();
    await rehearse();
    // The first call does that. What it begins is ended below.
    this.#goOn();
    // The first calls then fill the young generation from its beginning, without a collection.
    this.#collect?.("minor");
    // Otherwise the next look would discard what was compiled.
    this.#rested(residentBytes(), 0);
    this.#unoptimizedLeft = UNOPTIMIZED_CALLS;
    this.#awaitsSnapshot = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#goOn(), this.#snapshotLimitMs).unref();
  }

  /**
   * Sets the flag at the first work, not at the start: V8 rejects all code that was cached under other flags. With that
   * of `streaming` an upload peaks 3 MB lower, and the first takes a sixth less CPU.
   */
  #growSlowly(): void {
    if (this.#growsSlowly) return;
    this.#growsSlowly = true;
    setFlags([`heap-growing-percent=${OLD_GENERATION_GROWTH_PERCENT}`]);
  }

  /** Lets V8 optimize again. */
  #optimize(): void {
    if (this.#unoptimizedLeft === undefined) return;
    this.#unoptimizedLeft = undefined;
    setFlags(OPTIMIZERS);
  }

  #look(): void {
    this.#timer = undefined;
    // Without calls the snapshot may still be to come.
    if (this.#unoptimizedLeft !== UNOPTIMIZED_CALLS) this.#optimize();
    const { user, system } = process.cpuUsage(this.#cpuAtWork);
    if ((user + system) / 1_000 > this.#lookAfterMs * REST_CPU_SHARE) {
      this.worked();
      return;
    }
    if (residentBytes() > this.#atRestBytes + WORTHWHILE_BYTES) this.#giveBackGarbage();
    this.#giveBackStart();
  }

  /** Frees garbage and code that V8 has not used lately, then makes the C library return the memory to the kernel. */
  #giveBackGarbage(): void {
    this.#collect ??= garbageCollector();
    this.#collect("major");
    this.#addon.trimHeap();
    this.#rested(residentBytes(), this.#calls);
  }

  #rested(bytes: number, calls: number): void {
    this.#atRestBytes = bytes;
    this.#callsAtRest = calls;
  }

  /** Frees, once and while no call runs, what only the start needed. What calls need would be read again at each. */
  #giveBackStart(): void {
    if (this.#hasRested || this.#calls > 0) return;
    this.#hasRested = true;
    this.#pages?.giveBack();
  }
}

function setFlags(flags: readonly string[]): void {
  const { setFlagsFromString } = process.getBuiltinModule("node:v8");
  for (const flag of flags) setFlagsFromString(`--${flag}`);
}

/** Without /proc Node throws: then returns the most that was ever resident, so that the first rest frees memory. */
function residentBytes(): number {
  try {
    return process.memoryUsage.rss();
  } catch {
    return process.resourceUsage().maxRSS * 1024;
  }
}
