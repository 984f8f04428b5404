import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { Addon } from "../../native/index.ts";

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
  /** Together with the id it names the process for good: ids are given again. */
  readonly start: number;
}

/** Reads the addon's table. */
export function rowsOf(table: Int32Array): ProcessRow[] {
  const rows: ProcessRow[] = [];
  for (let at = 0; at + COLUMNS <= table.length; at += COLUMNS) {
    const [pid = 0, parent = 0, group = 0, session = 0, state = 0, start = 0] = table.subarray(at, at + COLUMNS);
    rows.push({ pid, parent, group, session, alive: state !== STATE_ZOMBIE && state !== STATE_DEAD, start });
  }
  return rows;
}

/** Age up to which a look serves another caller: hundreds of commands can lose their client in one moment. */
const SHARED_MS = 2;

/** Looks at all processes; each takes some 5 us a process. */
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

  /** The same a moment ago, where that look shows the process. */
  recentLook(pid: number): readonly ProcessRow[] | number {
    const isRecent = performance.now() - this.#lastMs < SHARED_MS && this.#last.some((row) => row.pid === pid);
    return isRecent ? this.#last : this.look();
  }
}

/**
 * Living members of the tree that `leader` began, among all processes. Who `isRoot` names is one, and so is a member's child,
 * and whoever shares a session or process group with a member, as those are handed down, and never joined from outside:
 * that finds processes whose parent has died. The agent's own session and group are the exception. Undefined when `rows` do
 * not show `self`, the agent: there is no usable /proc.
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
  // Nor is the agent's parent one, whoever else is.
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
