import { readlinkSync } from "node:fs";
import type { Addon } from "../../native/index.ts";
import { namesIn, readProc } from "../proc.ts";

/** Columns of a row of the addon's process table. */
const COLUMNS = 6;
const STATE_ZOMBIE = 0x5a; /* Z */
const STATE_DEAD = 0x58; /* X */

/** A process at one moment. */
export interface ProcessRow {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly alive: boolean;
  /** Start time. With the id it identifies the process for ever, as the kernel reuses ids. */
  readonly start: number;
}

/** Rows of the addon's table. */
export function rowsOf(table: Int32Array): ProcessRow[] {
  const rows: ProcessRow[] = [];
  for (let at = 0; at + COLUMNS <= table.length; at += COLUMNS) {
    const [pid = 0, parent = 0, group = 0, session = 0, state = 0, start = 0] = table.subarray(at, at + COLUMNS);
    rows.push({ pid, parent, group, session, alive: state !== STATE_ZOMBIE && state !== STATE_DEAD, start });
  }
  return rows;
}

/** Age up to which a table is shared with other callers: hundreds of commands can lose their client at once. */
const SHARED_MS = 2;

/** Reads the table of all processes, which takes some 5 us a process. */
export class ProcessTable {
  readonly #addon: Pick<Addon, "processTable">;
  #last: readonly ProcessRow[] = [];
  #lastMs = -Infinity;

  constructor(addon: Pick<Addon, "processTable">) {
    this.#addon = addon;
  }

  /** All processes now, or a negated errno. */
  look(): readonly ProcessRow[] | number {
    const table = this.#addon.processTable();
    if (typeof table === "number") return table;
    this.#last = rowsOf(table);
    this.#lastMs = performance.now();
    return this.#last;
  }

  /** The table of a moment ago, if that contains the process; else a new one. */
  recentLook(pid: number): readonly ProcessRow[] | number {
    const isRecent = performance.now() - this.#lastMs < SHARED_MS && this.#last.some((row) => row.pid === pid);
    return isRecent ? this.#last : this.look();
  }
}

/**
 * Living members of the tree of `leader`, among all processes: those that `isRoot` names, children of members, and
 * processes that share a session or process group with a member. Sessions and groups are inherited and cannot be joined
 * from outside, so this finds processes whose parent has died. The agent's own session and group do not count.
 * Undefined when `rows` lack `self`, the agent: there is no usable /proc.
 */
export function membersOf(
  rows: readonly ProcessRow[],
  leader: number,
  self: number,
  isRoot: (row: ProcessRow) => boolean = () => false,
): ProcessRow[] | undefined {
  const own = rows.find((row) => row.pid === self);
  if (own === undefined) return undefined;
  const pids = new Set([leader]);
  const families = new Set([leader]);
  const belongs = (row: ProcessRow): boolean =>
    pids.has(row.pid) || pids.has(row.parent) || families.has(row.group) || families.has(row.session) || isRoot(row);
  // The agent and its parent are never members.
  let others = rows.filter((row) => row.pid > 1 && row.pid !== self && row.pid !== own.parent);
  const members: ProcessRow[] = [];
  for (let before = -1; before < members.length;) {
    before = members.length;
    const rest: ProcessRow[] = [];
    for (const row of others) {
      if (!belongs(row)) {
        rest.push(row);
        continue;
      }
      members.push(row);
      pids.add(row.pid);
      if (row.group !== own.group) families.add(row.group);
      if (row.session !== own.session) families.add(row.session);
    }
    others = rest;
  }
  return members.filter((row) => row.alive);
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

/** A starting child of the agent has copies of all its descriptors for a moment, so it does not count as a holder. */
function isChildOf(pid: string, parent: number): boolean {
  return new RegExp(`^\\d+ \\(.*\\) \\S ${parent} `, "s").test(readProc(`/proc/${pid}/stat`));
}

/** Processes other than the agent that hold one of the pipes with these inodes, as far as /proc shows. */
export function outputHolders(inodes: ReadonlySet<number>): number[] {
  const links = new Set([...inodes].map((inode) => `pipe:[${inode}]`));
  return namesIn("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => holdsOne(pid, links) && !isChildOf(pid, process.pid))
    .map(Number);
}
