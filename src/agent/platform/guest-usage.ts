import { closeSync, openSync, readdir, readSync } from "node:fs";
import { promisify } from "node:util";
import {
  type CpuUsage,
  FILE_SYSTEMS_LISTED,
  type GuestCounters,
  type Listed,
  type MemoryUsage,
  type MountedFileSystem,
  mountsIn,
  NETWORKS_LISTED,
  type NetworkUsage,
  type Pressure,
  type ReadCounters,
} from "../domain/index.ts";
import type { CgroupDirectory } from "./processes/cgroup-directory.ts";

const namesOf = promisify(readdir);

/**
 * Largest number of bytes that are read of a file. It is enough for about 1,500 mounts in /proc/self/mountinfo, and
 * takes about a millisecond; a guest may have 100,000 mounts.
 */
const HEAD_BYTES: number = 256 * 1024;
const PIECE_BYTES: number = 32 * 1024;
const KIB = 1024;
/** Unit of /proc/stat: USER_HZ is 100 on both architectures (time(7)). */
const TICK_US = 10_000;

/** Reads /proc, and the counters of the session's cgroup if there is one. */
export function countersReader(session: CgroupDirectory | undefined): ReadCounters {
  return async () => {
    const [names, pieces] = [await namesOf("/proc").catch(() => []), Buffer.allocUnsafe(PIECE_BYTES)];
    const read = (path: string): Head => readHead(path, pieces);
    const processes = names.filter((name) => /^\d/.test(name)).length;
    const oomKills = session?.used()[3] ?? -1;
    return {
      uptimeUs: Math.round(Number(process.hrtime.bigint()) / 1e3),
      memory: memoryIn(read("/proc/meminfo").text),
      cpu: cpuIn(read("/proc/stat").text),
      pressure: {
        // "full" is not defined for the CPU: the kernel always reports 0 (psi.rst).
        cpu: pressureIn(read("/proc/pressure/cpu").text.replace(/^full.*/m, "")),
        memory: pressureIn(read("/proc/pressure/memory").text),
        io: pressureIn(read("/proc/pressure/io").text),
      },
      networks: networksIn(read("/proc/net/dev")),
      processes: processes > 0 ? processes : undefined,
      sessionOomKills: oomKills < 0 ? undefined : oomKills,
      fileSystems: fileSystemsIn(read("/proc/self/mountinfo")),
    } satisfies GuestCounters;
  };
}

/** The start of a file, cut after a whole line, decoded as latin1; empty if the file cannot be read. */
interface Head {
  readonly text: string;
  readonly truncated: boolean;
}

/** Reads synchronously: these files of /proc do not block, and handing eight small reads to threads takes longer. */
function readHead(path: string, pieces: Buffer): Head {
  let fd: number | undefined;
  let text = "";
  try {
    fd = openSync(path, "r");
    while (text.length < HEAD_BYTES) {
      const length = readSync(fd, pieces);
      if (length === 0) return { text, truncated: false };
      text += pieces.toString("latin1", 0, length);
    }
    return { text: text.slice(0, text.lastIndexOf("\n") + 1), truncated: true };
  } catch {
    return { text: "", truncated: false };
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

function memoryIn(text: string): MemoryUsage | undefined {
  const bytesOf = (name: string): number | undefined => {
    const kib = new RegExp(`^${name}: +(\\d+) kB$`, "m").exec(text)?.[1];
    return kib === undefined ? undefined : Number(kib) * KIB;
  };
  if (text === "") return undefined;
  return {
    totalBytes: bytesOf("MemTotal"),
    availableBytes: bytesOf("MemAvailable"),
    swapTotalBytes: bytesOf("SwapTotal"),
    swapFreeBytes: bytesOf("SwapFree"),
  };
}

/** CPU time from /proc/stat. Time of nested virtual machines is part of `user` and `nice` (proc_stat(5)). */
function cpuIn(text: string): CpuUsage | undefined {
  const ticks = /^cpu +(.*)$/m.exec(text)?.[1]?.split(" ").map(Number);
  if (ticks === undefined) return undefined;
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = ticks;
  const count = text.match(/^cpu\d/gm)?.length ?? 0;
  return { count, busyUs: (user + nice + system + irq + softirq) * TICK_US, stealUs: steal * TICK_US };
}

function pressureIn(text: string): Pressure | undefined {
  const totalOf = (line: string): number | undefined => {
    const total = new RegExp(`^${line} .*total=(\\d+)$`, "m").exec(text)?.[1];
    return total === undefined ? undefined : Number(total);
  };
  return text === "" ? undefined : { someUs: totalOf("some"), fullUs: totalOf("full") };
}

/** Parses /proc/net/dev: two header lines, and a line per interface with its name, 8 receive and 8 send counters. */
function networksIn({ text, truncated }: Head): Listed<NetworkUsage> {
  const networks: NetworkUsage[] = [];
  for (const line of text.split("\n").slice(2)) {
    const [, name, numbers = ""] = /^ *([^ :]+): *(.*)$/.exec(line) ?? [];
    if (name === undefined || name === "lo") continue;
    const columns = numbers.split(/ +/).map(Number);
    networks.push({ name: utf8(name), receivedBytes: columns[0] ?? 0, sentBytes: columns[8] ?? 0 });
  }
  return listed(networks, NETWORKS_LISTED, truncated);
}

/**
 * Types of pseudo file systems, which have no space of their own. This is the list of prometheus-node-exporter, without
 * the types that store files.
 */
const WITHOUT_SPACE: ReadonlySet<string> = new Set(
  (
    "autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl hugetlbfs mqueue nsfs " +
    "proc pstore rpc_pipefs securityfs selinuxfs sysfs tracefs"
  ).split(" "),
);

function fileSystemsIn({ text, truncated }: Head): Listed<MountedFileSystem> {
  // If there are several mounts at the same path, only the last mount is visible.
  const byPoint = new Map(mountsIn(text).map((mount) => [mount.path, mount]));
  const byDevice = new Map<string, { readonly path: string; readonly type: string }>();
  for (const { fileSystem, path, type } of byPoint.values()) {
    if (WITHOUT_SPACE.has(type)) continue;
    const known = byDevice.get(fileSystem);
    if (known === undefined || path.length < known.path.length) byDevice.set(fileSystem, { path, type });
  }
  const all = [...byDevice.values()];
  const rootFirst = [...all.filter(({ path }) => path === "/"), ...all.filter(({ path }) => path !== "/")];
  const items = rootFirst.map(({ path, type }) => ({ path: Buffer.from(path, "latin1"), type }));
  return listed(items, FILE_SYSTEMS_LISTED, truncated);
}

function listed<Item>(items: readonly Item[], limit: number, truncated: boolean): Listed<Item> {
  return { items: items.slice(0, limit), truncated: truncated || items.length > limit };
}

function utf8(latin1: string): string {
  return Buffer.from(latin1, "latin1").toString();
}
