import { readdirSync, readFileSync, readlinkSync } from "node:fs";

function namesIn(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function holdsOne(pid: string, links: ReadonlySet<string>): boolean {
  return namesIn(`/proc/${pid}/fd`).some((fd) => {
    try {
      return links.has(readlinkSync(`/proc/${pid}/fd/${fd}`));
    } catch {
      return false; /* Closed meanwhile. */
    }
  });
}

/** A child that is being started has copies of all that the agent has, for a moment. */
function isChildOf(pid: string, parent: number): boolean {
  try {
    return new RegExp(`^\\d+ \\(.*\\) \\S ${parent} `, "s").test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

/** Processes other than the agent that hold one of the pipes, known by their inodes, as far as /proc shows it. */
export function outputHolders(inodes: ReadonlySet<number>): number[] {
  const links = new Set([...inodes].map((inode) => `pipe:[${inode}]`));
  return namesIn("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => holdsOne(pid, links) && !isChildOf(pid, process.pid))
    .map(Number);
}
