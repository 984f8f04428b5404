import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import type { Addon } from "../native/index.ts";

/** Time from some work to a look at whether there still is any. */
const LOOK_AFTER_MS = 10_000;
/** The agent is at rest while it uses less of one CPU than this. */
const REST_CPU_SHARE = 0.02;
/** What is given back must be worth the time that it takes, some 20 ms. */
const WORTHWHILE_BYTES: number = 4 * 1024 * 1024;
/**
 * Percent of V8's young generation that may be full before it is collected between two pieces of work. The chunks of a
 * stream are small objects in front of much larger memory: at V8's own 80 the memory that lies dead is so much that V8
 * takes it for growth and collects everything, again and again.
 */
const YOUNG_GENERATION_PERCENT = 25;
/** V8's own. Small calls have nothing in front of much memory, and a collection for every few of them costs a sixth. */
const USUAL_YOUNG_GENERATION_PERCENT = 80;
/** How far the old generation may grow before it is collected; V8 would let it become four times as large. */
const OLD_GENERATION_GROWTH_PERCENT = 60;

type CollectGarbage = (options: { type: "major"; execution: "sync"; flavor: "last-resort" }) => void;

/** Keeps what the agent holds small: little garbage while it works, none while it rests. */
export class MemoryKeeper {
  readonly #addon: Pick<Addon, "trimHeap">;
  readonly #lookAfterMs: number;
  #collectGarbage: CollectGarbage | undefined;
  #timer: NodeJS.Timeout | undefined;
  #cpuAtWork: NodeJS.CpuUsage | undefined;
  #atRestBytes = 0;
  #growsSlowly = false;
  #atFirstRest: (() => void) | undefined;

  /** @param atFirstRest gives back what the start has left in other places */
  constructor(addon: Pick<Addon, "trimHeap">, lookAfterMs: number = LOOK_AFTER_MS, atFirstRest?: () => void) {
    this.#addon = addon;
    this.#lookAfterMs = lookAfterMs;
    this.#atFirstRest = atFirstRest;
  }

  /** To be told of work when it is done. Without any there is no timer, so that rest is rest. */
  worked(): void {
    if (this.#timer !== undefined) return;
    this.#growSlowly();
    this.#cpuAtWork = process.cpuUsage();
    this.#timer = setTimeout(() => this.#look(), this.#lookAfterMs);
    this.#timer.unref();
  }

  /** To be told when much is being moved, and when that is over. */
  streaming(any: boolean): void {
    const percent = any ? YOUNG_GENERATION_PERCENT : USUAL_YOUNG_GENERATION_PERCENT;
    process.getBuiltinModule("node:v8").setFlagsFromString(`--minor-gc-task-trigger=${percent}`);
  }

  /** With the first work rather than at the start: V8 refuses code that was cached under other flags, all of Node's. */
  #growSlowly(): void {
    if (this.#growsSlowly) return;
    this.#growsSlowly = true;
    const { setFlagsFromString } = process.getBuiltinModule("node:v8");
    setFlagsFromString(`--heap-growing-percent=${OLD_GENERATION_GROWTH_PERCENT}`);
  }

  #look(): void {
    this.#timer = undefined;
    const { user, system } = process.cpuUsage(this.#cpuAtWork);
    if ((user + system) / 1_000 > this.#lookAfterMs * REST_CPU_SHARE) this.worked();
    else if (residentBytes() > this.#atRestBytes + WORTHWHILE_BYTES) this.#giveBack();
  }

  /** Also the code that V8 has compiled and not used lately; the C library keeps what was freed unless it is told. */
  #giveBack(): void {
    this.#collectGarbage ??= garbageCollector();
    this.#collectGarbage({ type: "major", execution: "sync", flavor: "last-resort" });
    this.#addon.trimHeap();
    this.#atFirstRest?.();
    this.#atFirstRest = undefined;
    this.#atRestBytes = residentBytes();
  }
}

/** Without /proc nobody can tell, and Node throws: the most that it ever was stands for it, so that a first rest gives back. */
function residentBytes(): number {
  try {
    return process.memoryUsage.rss();
  } catch {
    return process.resourceUsage().maxRSS * 1024;
  }
}

/** V8 shows it to contexts that are made while the flag is set. */
function garbageCollector(): CollectGarbage {
  const { setFlagsFromString } = process.getBuiltinModule("node:v8");
  const { runInNewContext } = process.getBuiltinModule("node:vm");
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as CollectGarbage;
  setFlagsFromString("--no-expose-gc");
  return collect;
}

/** Drops an open file's pages from the kernel's page cache, as far as the kernel is willing. */
export function fileCacheDropper(addon: Addon): (fd: number) => void {
  return (fd) => void addon.dropFileCache(fd);
}

/** The agent's executable in the bundle's folder. */
const PROGRAM = "agent.bin";

/**
 * Drops from the page cache what the start has read of the agent's executable and nothing uses: 70 of its 118 MB, which
 * would become part of a snapshot. Pages in use stay.
 */
export function dropProgramCache(addon: Pick<Addon, "dropFileCache">, bundleFolder: string): void {
  try {
    const fd = openSync(join(bundleFolder, PROGRAM), "r");
    addon.dropFileCache(fd);
    closeSync(fd);
  } catch {
    // Whoever may run a program need not be allowed to read it; it only takes more room then.
  }
}
