import { readdirSync, readFileSync } from "node:fs";

/** A process as /proc shows it. */
export interface ProcProcess {
  readonly pid: number;
  readonly name: string;
  readonly state: string;
  readonly parent: number;
  readonly session: number;
}

/** A process by its id. Undefined: it does not exist, or has just ended. */
export function processById(pid: number): ProcProcess | undefined {
  try {
    const match = /^\d+ \((.*)\) (\S) (\d+) \d+ (\d+)/s.exec(readFileSync(`/proc/${pid}/stat`, "utf8"));
    if (match === null) return undefined;
    const [, name = "", state = "", parent, session] = match;
    return { pid, name, state, parent: Number(parent), session: Number(session) };
  } catch {
    return undefined; /* It ended meanwhile. */
  }
}

/** All processes, zombies included. */
export function allProcesses(): ProcProcess[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => processById(Number(name)))
    .filter((found) => found !== undefined);
}

/** The mount points of cgroup2 that this process sees. */
export function cgroupMounts(): string[] {
  const mounts = readFileSync("/proc/self/mounts", "utf8").split("\n");
  return mounts.map((line) => line.split(" ")).flatMap(([, path = "", type]) => (type === "cgroup2" ? [path] : []));
}
