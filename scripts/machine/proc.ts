import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";

/** A process as /proc shows it. */
export interface ProcProcess {
  readonly pid: number;
  readonly name: string;
  readonly state: string;
  readonly parent: number;
  readonly session: number;
}

/** Returns the process with this id. Undefined if it does not exist or has just ended. */
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

/** Returns all processes, including zombies. */
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

/**
 * Detaches all mounts in a directory, including those whose server has ended, because `rm` fails on them with ENOTCONN.
 *
 * @returns the mount points
 */
export function detachMounts(directory: string): string[] {
  const mounts = readFileSync("/proc/self/mounts", "utf8").split("\n");
  // In proc_pid_mounts(5), space, tab, newline and backslash are escaped as octal numbers.
  const decoded = mounts.map((line) =>
    (line.split(" ")[1] ?? "").replaceAll(/\\(\d{3})/g, (_, octal: string) =>
      String.fromCharCode(Number.parseInt(octal, 8)),
    ),
  );
  const found = decoded.filter((path) => path.startsWith(`${directory}/`)).toReversed();
  for (const path of found) spawnSync("umount", ["--lazy", "--no-canonicalize", path], { stdio: "ignore" });
  return found;
}
