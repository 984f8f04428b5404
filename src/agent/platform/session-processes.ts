import { constants } from "node:os";
import {
  FileSystemHung,
  type SessionProcess,
  type SessionProcesses,
  type SessionReading,
  yieldToEventLoop,
} from "../domain/index.ts";
import type { Addon } from "../native/index.ts";
import { readProc } from "./proc.ts";
import type { CgroupDirectory } from "./processes/cgroup-directory.ts";
import { Descendants } from "./processes/descendants.ts";

const { ENOSYS, EPERM, ESRCH } = constants.errno;
/** Number of processes to read per tick of the event loop. Each takes some 40 us. */
const READ_AT_ONCE = 64;
/** Largest number of nested cgroups that are searched for processes of the session. */
const NESTED_LIMIT = 16_384;
/** Unit of times in /proc/PID/stat. USER_HZ is 100 on both architectures (time(7)). */
const TICK_US = 10_000;
const KIB = 1024;
/** Mask for start times: the addon compares only their lower 31 bits. */
const START_MASK = 0x7fff_ffff;
/** Indexes of fields of /proc/PID/stat after the name. Index 0 is field 3 of proc_pid_stat(5). */
const FIELD = { state: 0, parent: 1, session: 3, userTicks: 11, systemTicks: 12, startTicks: 19 } as const;

export interface SessionProcessesParts {
  readonly addon: Pick<Addon, "processSessions" | "parentOf" | "isAlive" | "signalProcess">;
  /** The session's cgroup. If undefined, only descendants of the launcher are found. */
  readonly cgroup: Pick<CgroupDirectory, "name" | "members"> | undefined;
  /** The process that adopts the orphans of the session. Undefined if there is no launcher. */
  readonly launcher: number | undefined;
  /**
   * Reads the start of a file on a thread. Rejects if the file cannot be read, and with FileSystemHung if the read
   * hangs.
   */
  readonly readStart: (path: string, limitBytes: number) => Promise<Uint8Array>;
}

/**
 * The processes of the session: the members of its cgroup, and the descendants of the launcher (or of the agent). Both
 * are needed: a privileged process can leave the cgroup, and without a launcher, only the cgroup shows orphans.
 */
export function sessionProcesses({ addon, cgroup, launcher, readStart }: SessionProcessesParts): SessionProcesses {
  const descendants = new Descendants(addon, launcher ?? process.pid);
  const outsiders = [1, process.pid, process.ppid];
  const pidsOf = (): Set<number> | undefined => {
    const found = descendants.scan();
    const members = cgroup?.members(NESTED_LIMIT) ?? new Set();
    if (found === undefined) return undefined;
    const pids = found.descendants.union(members);
    for (const pid of outsiders) pids.delete(pid);
    return pids;
  };
  return {
    read: async (limit) => {
      const pids = pidsOf();
      if (pids === undefined) return undefined;
      const sorted = [...pids].toSorted((one, other) => one - other);
      const processes: SessionProcess[] = [];
      for (const [index, pid] of sorted.slice(0, limit).entries()) {
        if (index % READ_AT_ONCE === READ_AT_ONCE - 1) await yieldToEventLoop();
        const read = readProcess(pid, cgroup?.name);
        if (read !== undefined) processes.push(read);
      }
      return { processes, truncated: sorted.length > limit, uptimeUs: uptimeUs() } satisfies SessionReading;
    },
    commandLine: async (pid, limitBytes) => {
      try {
        return await readStart(`/proc/${pid}/cmdline`, limitBytes);
      } catch (error) {
        // A hung read occupies a thread until it returns. Waiting for it keeps the caller from starting a second read
        // for the same process.
        if (error instanceof FileSystemHung) await error.returned;
        return undefined;
      }
    },
    signal: (pid, startTicks, signal) => {
      if (pidsOf()?.has(pid) !== true) return "unknown";
      const result = addon.signalProcess(pid, startTicks & START_MASK, signal);
      if (result === -EPERM) return "not_permitted";
      if (result === -ENOSYS) return "unsupported";
      return result === -ESRCH ? "unknown" : undefined;
    },
  };
}

/**
 * Reads a process; undefined if it has ended. Reads synchronously, because these files cannot block: unlike
 * /proc/PID/cmdline, they need no lock of the process.
 */
function readProcess(pid: number, session: string | undefined): SessionProcess | undefined {
  const stat = readProc(`/proc/${pid}/stat`);
  const status = readProc(`/proc/${pid}/status`);
  // The name may contain spaces and parentheses, so parsing starts after the last parenthesis.
  const end = stat.lastIndexOf(")");
  const [, uid] = /^Uid:\t\d+\t(\d+)/m.exec(status) ?? [];
  if (end < 0 || uid === undefined) return undefined;
  const fields = stat.slice(end + 2).split(" ");
  const number = (name: keyof typeof FIELD): number => Number(fields[FIELD[name]]);
  const rssKib = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? "0";
  return {
    pid,
    startTicks: number("startTicks"),
    parent: number("parent"),
    session: number("session"),
    uid: Number(uid),
    state: fields[FIELD.state] ?? "",
    cpuUs: (number("userTicks") + number("systemTicks")) * TICK_US,
    rssBytes: Number(rssKib) * KIB,
    name: stat.slice(stat.indexOf("(") + 1, end),
    cgroup: session === undefined ? undefined : cgroupBelow(readProc(`/proc/${pid}/cgroup`), session),
  };
}

/** Name of the cgroup directly below the session's cgroup, from /proc/PID/cgroup (cgroups(7)). */
function cgroupBelow(text: string, session: string): string | undefined {
  const path = /^0::(\/.*)$/m.exec(text)?.[1] ?? "";
  const names = path.split("/");
  const at = names.indexOf(session);
  return at < 0 ? undefined : names[at + 1];
}

/** Time since boot. It includes suspended time, like the start times in /proc. */
function uptimeUs(): number {
  return Math.round(Number(readProc("/proc/uptime").split(" ")[0]) * 1e6);
}
