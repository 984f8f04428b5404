import { readdirSync, readFileSync } from "node:fs";

/** Reads a file of /proc; empty when the process has ended meanwhile. */
function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

function threadsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return [];
  }
}

/** Running children of a process. */
export function childrenOf(pid: number): number[] {
  return threadsOf(pid).flatMap((thread) =>
    read(`/proc/${pid}/task/${thread}/children`)
      .split(" ")
      .filter((text) => text !== "")
      .map(Number),
  );
}

/** Name of a process's program, cut by the kernel to 15 characters. */
export function nameOf(pid: number): string {
  return read(`/proc/${pid}/comm`).trim();
}

/** CPU time that the threads of these processes have used, in milliseconds (proc(5), schedstat: nanoseconds). */
export function cpuMsOf(pids: readonly number[]): number {
  let ns = 0;
  for (const pid of pids) {
    for (const thread of threadsOf(pid)) ns += Number(read(`/proc/${pid}/task/${thread}/schedstat`).split(" ", 1)[0]);
  }
  return ns / 1e6;
}

/** The same with what their children have used that have ended: of tools that start one for each connection or command. */
export function cpuMsOfAll(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + waitedMsOf(pid), cpuMsOf(pids));
}

/** proc_pid_stat(5): cutime and cstime, in hundredths of a second. */
function waitedMsOf(pid: number): number {
  const fields = read(`/proc/${pid}/stat`).split(") ").at(-1)?.split(" ") ?? [];
  return (Number(fields[13] ?? 0) + Number(fields[14] ?? 0)) * 10;
}

function statusField(text: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0);
}

/** Anonymous memory of these processes, in bytes: memory that is theirs alone and cannot be dropped. */
export function anonymousBytesOf(pids: readonly number[]): number {
  let kibibytes = 0;
  for (const pid of pids) kibibytes += statusField(read(`/proc/${pid}/status`), "RssAnon");
  return kibibytes * 1024;
}

/** Voluntary context switches of these processes' threads: as many as wake-ups. */
export function wakeUpsOf(pids: readonly number[]): number {
  let count = 0;
  for (const pid of pids) {
    for (const thread of threadsOf(pid)) {
      count += statusField(read(`/proc/${pid}/task/${thread}/status`), "voluntary_ctxt_switches");
    }
  }
  return count;
}
