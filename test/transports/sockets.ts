import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { allProcesses } from "../fixtures/proc.ts";

/** Tables of /proc/<pid>/net that list the sockets which a network can reach, by the names of their files. */
const NETWORK_TABLES = ["tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6", "packet"];

/** A socket that a process holds, and the table of /proc/<pid>/net that lists it; undefined: none does. */
export interface HeldSocket {
  readonly inode: string;
  readonly table: string | undefined;
}

/** The sockets that a process and its descendants hold. */
export function socketsHeldBy(pid: number): HeldSocket[] {
  const tables = new Map([...NETWORK_TABLES, "unix"].flatMap((table) => inodesOf(pid, table)));
  return family(pid)
    .flatMap(inodesHeldBy)
    .map((inode) => ({ inode, table: tables.get(inode) }));
}

/** Every entry of the network's tables, for a process in its own network namespace. */
export function networkEntries(pid: number): string[] {
  return NETWORK_TABLES.flatMap((table) => entriesOf(pid, table).map((entry) => `${table}: ${entry}`));
}

function family(pid: number): number[] {
  const children = allProcesses().filter(({ parent }) => parent === pid);
  return [pid, ...children.flatMap((child) => family(child.pid))];
}

function inodesHeldBy(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      const [, inode] = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? [];
      return inode === undefined ? [] : [inode];
    } catch {
      return []; /* Closed meanwhile. */
    }
  });
}

function inodesOf(pid: number, table: string): [inode: string, table: string][] {
  // The column differs between tables; another number that happens to match does no harm to a test for absence.
  return entriesOf(pid, table).flatMap((entry) =>
    Array.from(entry.matchAll(/(?<=\s)\d{3,}(?=\s|$)/g), ([inode]) => [inode, table] as [string, string]),
  );
}

/** The lines below the heading; none where the kernel has no such table. */
function entriesOf(pid: number, table: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/net/${table}`, "utf8").trimEnd().split("\n").slice(1);
  } catch {
    return [];
  }
}
