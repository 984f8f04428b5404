import { existsSync, readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { errnoOf } from "../../src/shared/errors.ts";
import { allProcesses, cgroupMounts } from "../../test/fixtures/proc.ts";

const LOOK_MS = 100;
/** For what the work leaves to go: more than the longest of the agent's limits. */
const SETTLE_LIMIT_MS = 30_000;

/** Resources of an agent that finished work must not increase. */
export interface Footprint {
  readonly descriptors: number;
  readonly threads: number;
  readonly cgroups: number;
  /** Children that run. */
  readonly processes: number;
  readonly zombies: number;
}

/** Searches again if a cgroup is removed meanwhile. */
function foldersBelow(folder: string): string[] {
  for (;;) {
    try {
      return readdirSync(folder, { recursive: true, encoding: "utf8" });
    } catch (error) {
      if (errnoOf(error) !== "ENOENT") throw error;
      if (!existsSync(folder)) return [];
    }
  }
}

/** Cgroups that an agent made for commands, in any cgroup2 mount, by the id in its own process namespace. */
export function cgroupsOf(pid: unknown): string[] {
  const name = new RegExp(`(^|/)svc-guest-${String(pid)}-\\d+$`);
  return cgroupMounts()
    .flatMap(foldersBelow)
    .filter((path) => name.test(path));
}

/** Measures an agent from outside. */
function footprintOf(pid: number): Footprint {
  const children = allProcesses().filter(({ parent }) => parent === pid);
  return {
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    threads: readdirSync(`/proc/${pid}/task`).length,
    cgroups: cgroupsOf(pid).length,
    processes: children.filter(({ state }) => state !== "Z").length,
    zombies: children.filter(({ state }) => state === "Z").length,
  };
}

/**
 * The footprint once it is as wanted, or 30 s are over.
 *
 * @param wanted an earlier footprint; undefined: one of an agent that runs nothing, unchanged for a second
 */
export async function settledFootprint(
  pid: number,
  wanted: Footprint | undefined,
  isAsWanted: (wanted: Footprint, now: Footprint) => boolean,
): Promise<Footprint> {
  const deadline = performance.now() + SETTLE_LIMIT_MS;
  let last: Footprint | undefined;
  for (let repeats = 0; ; repeats++) {
    const now = footprintOf(pid);
    if (!isDeepStrictEqual(now, last)) repeats = 0;
    last = now;
    const isSettled = wanted === undefined ? repeats >= 10 && now.processes === 0 : isAsWanted(wanted, now);
    if (isSettled || performance.now() > deadline) return now;
    await delay(LOOK_MS);
  }
}

/** Memory of its own, in bytes: now, and the most there ever was in all. */
export function memoryOf(pid: number): { readonly ownBytes: number; readonly peakBytes: number } {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) * 1024;
  return { ownBytes: field("RssAnon"), peakBytes: field("VmHWM") };
}
