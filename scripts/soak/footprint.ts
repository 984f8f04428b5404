import { existsSync, readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { errnoOf } from "../../src/shared/errors.ts";
import { allProcesses, cgroupMounts } from "../../test/fixtures/proc.ts";

const LOOK_MS = 100;

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
 * The footprint once `isSettled` holds, or `limitMs` is over.
 *
 * @param isSettled gets a footprint and how often in a row it was the same, at a look every 100 ms
 */
export async function settledFootprint(
  pid: number,
  isSettled: (footprint: Footprint, repeats: number) => boolean,
  limitMs: number,
): Promise<Footprint> {
  const deadline = performance.now() + limitMs;
  let last = "";
  for (let repeats = 0; ; repeats++) {
    const footprint = footprintOf(pid);
    const text = JSON.stringify(footprint);
    if (text !== last) repeats = 0;
    last = text;
    if (isSettled(footprint, repeats) || performance.now() > deadline) return footprint;
    await delay(LOOK_MS);
  }
}

/** Memory of its own, in bytes: now, and the most there ever was in all. */
export function memoryOf(pid: number): { readonly ownBytes: number; readonly peakBytes: number } {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) * 1024;
  return { ownBytes: field("RssAnon"), peakBytes: field("VmHWM") };
}
