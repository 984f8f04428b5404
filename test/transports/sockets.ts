import { readFileSync } from "node:fs";

/** Tables of /proc/<pid>/net that list the sockets which a network can reach, by the names of their files. */
const NETWORK_TABLES = ["tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6", "packet"];

/** Every entry of the network's tables, for a process in its own network namespace. */
export function networkEntries(pid: number): string[] {
  return NETWORK_TABLES.flatMap((table) => entriesOf(pid, table).map((entry) => `${table}: ${entry}`));
}

/** The lines below the heading; none where the kernel has no such table. */
function entriesOf(pid: number, table: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/net/${table}`, "utf8").trimEnd().split("\n").slice(1);
  } catch {
    return [];
  }
}
