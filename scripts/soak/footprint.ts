import { existsSync, readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { errnoOf } from "../../src/domain/index.ts";
import { openDescriptors } from "../../test/fixtures/proc.ts";

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

interface Entry {
  readonly parent: number;
  readonly state: string;
}

function entries(): Entry[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const match = /^\d+ \(.*\) (\S) (\d+)/s.exec(readFileSync(`/proc/${name}/stat`, "utf8"));
        return match === null ? [] : [{ state: match[1] ?? "", parent: Number(match[2]) }];
      } catch {
        return [];
      }
    });
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

/** Cgroups that the agent made for commands, in any cgroup2 mount. */
function cgroupsOf(pid: number): number {
  const mounts = readFileSync("/proc/self/mounts", "utf8").split("\n");
  const paths = mounts.map((line) => line.split(" ")).filter((fields) => fields[2] === "cgroup2");
  return paths
    .flatMap((fields) => foldersBelow(fields[1] ?? "/"))
    .filter((path) => /(^|\/)svc-guest-\d+-\d+$/.test(path) && path.includes(`svc-guest-${pid}-`)).length;
}

/** Measures an agent from outside. */
function footprintOf(pid: number): Footprint {
  const children = entries().filter(({ parent }) => parent === pid);
  return {
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    threads: readdirSync(`/proc/${pid}/task`).length,
    cgroups: cgroupsOf(pid),
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

/** Sockets that a process holds of connections to a TCP port of its own, as the kernel shows them. */
export function openConnections(pid: number, port: number): number {
  const inodes = new Set(openDescriptors(pid).map((entry) => /socket:\[(\d+)\]$/.exec(entry)?.[1]));
  const local = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, "0")}$`);
  const LISTEN = "0A";
  return ["tcp", "tcp6"]
    .flatMap((table) => readFileSync(`/proc/${pid}/net/${table}`, "utf8").split("\n").slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter(
      ([, address = "", , state, , , , , , inode]) => local.test(address) && state !== LISTEN && inodes.has(inode),
    ).length;
}
