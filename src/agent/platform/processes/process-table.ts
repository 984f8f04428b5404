import { readlinkSync } from "node:fs";
import { namesIn, readProc } from "../proc.ts";

/** Number of columns of a row of Addon.processRows. */
const COLUMNS = 6;
const STATE_ZOMBIE = 0x5a; /* Z */
const STATE_DEAD = 0x58; /* X */
/** The session of a process that ended before its session could be read (Addon.processSessions). */
export const UNKNOWN_SESSION = -1;

/** What /proc/PID/stat says about a process at the time of the reading (Addon.processRows). */
export interface ProcessRow {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly alive: boolean;
  /** Start time. Pid and start time together identify a process; a pid alone may be reused. */
  readonly start: number;
}

/** Decodes the rows that Addon.processRows returns. */
export function rowsOf(cells: Int32Array): ProcessRow[] {
  const rows: ProcessRow[] = [];
  for (let at = 0; at + COLUMNS <= cells.length; at += COLUMNS) {
    const [pid = 0, parent = 0, group = 0, session = 0, state = 0, start = 0] = cells.subarray(at, at + COLUMNS);
    rows.push({ pid, parent, group, session, alive: state !== STATE_ZOMBIE && state !== STATE_DEAD, start });
  }
  return rows;
}

/** Whether both rows describe the same process, not a later one with the same pid. */
export function isSame(one: ProcessRow, other: ProcessRow | undefined): boolean {
  return one.pid === other?.pid && one.start === other.start;
}

/** All processes at one moment, indexed by pid, parent, group and session. */
export class ProcessTable {
  readonly #byPid: ReadonlyMap<number, ProcessRow>;
  readonly #byParent: ReadonlyMap<number, readonly ProcessRow[]>;
  readonly #byGroup: ReadonlyMap<number, readonly ProcessRow[]>;
  readonly #bySession: ReadonlyMap<number, readonly ProcessRow[]>;
  readonly #unfinished: ReadonlySet<number>;

  /**
   * @param unfinished ids of the sessions of which the table may lack processes. Such a session had a process that
   *   ended before its row was read, and that may have left a child. If the set contains UNKNOWN_SESSION, the table may
   *   lack processes of any session.
   */
  constructor(rows: readonly ProcessRow[], unfinished: ReadonlySet<number> = new Set()) {
    this.#unfinished = unfinished;
    this.#byPid = new Map(rows.map((row) => [row.pid, row]));
    this.#byParent = Map.groupBy(rows, ({ parent }) => parent);
    this.#byGroup = Map.groupBy(rows, ({ group }) => group);
    this.#bySession = Map.groupBy(rows, ({ session }) => session);
  }

  get(pid: number): ProcessRow | undefined {
    return this.#byPid.get(pid);
  }

  /** Whether the table has every process of these sessions. */
  hasAllOf(sessions: ReadonlySet<number>): boolean {
    return !this.#unfinished.has(UNKNOWN_SESSION) && this.#unfinished.isDisjointFrom(sessions);
  }

  childrenOf(pid: number): readonly ProcessRow[] {
    return this.#byParent.get(pid) ?? [];
  }

  /** Processes whose process group or session has this id. */
  family(id: number): readonly ProcessRow[] {
    return [...(this.#byGroup.get(id) ?? []), ...(this.#bySession.get(id) ?? [])];
  }
}

/**
 * Returns the living members of the tree of `leader`:
 *
 * - the leader and the `roots`,
 * - all children of members,
 * - all processes in the process group or session of a member, because their own parents may have died. The agent's own
 *   group and session are excepted.
 *
 * Returns undefined if the table lacks the agent (`self`), because then /proc is not usable.
 */
export function membersOf(
  table: ProcessTable,
  leader: number,
  self: number,
  roots: readonly ProcessRow[] = [],
): ProcessRow[] | undefined {
  const own = table.get(self);
  if (own === undefined) return undefined;
  const members = new Map<number, ProcessRow>();
  const families = new Set<number>([own.group, own.session]);
  const waiting: ProcessRow[] = [];
  const add = (rows: readonly (ProcessRow | undefined)[]): void => {
    for (const row of rows) {
      // The agent, its parent and PID 1 are never members.
      if (row === undefined || row.pid <= 1 || row.pid === self || row.pid === own.parent) continue;
      if (members.has(row.pid)) continue;
      members.set(row.pid, row);
      waiting.push(row);
    }
  };
  const addFamily = (id: number): void => {
    if (families.has(id)) return;
    families.add(id);
    add(table.family(id));
  };
  add([table.get(leader), ...table.childrenOf(leader), ...roots]);
  addFamily(leader);
  for (let row = waiting.pop(); row !== undefined; row = waiting.pop()) {
    add(table.childrenOf(row.pid));
    addFamily(row.group);
    addFamily(row.session);
  }
  return [...members.values()].filter((row) => row.alive);
}

function holdsOne(pid: string, links: ReadonlySet<string>): boolean {
  return namesIn(`/proc/${pid}/fd`).some((fd) => {
    try {
      return links.has(readlinkSync(`/proc/${pid}/fd/${fd}`));
    } catch {
      return false; /* The descriptor was closed after it was listed. */
    }
  });
}

/**
 * Whether the process is a child of the agent. Children do not count as holders of a pipe, because a child that is
 * starting has copies of all the agent's descriptors for a moment.
 */
function isChildOf(pid: string, parent: number): boolean {
  return new RegExp(`^\\d+ \\(.*\\) \\S ${parent} `, "s").test(readProc(`/proc/${pid}/stat`));
}

/** Processes other than the agent that hold one of the pipes with these inodes, as far as /proc shows them. */
export function outputHolders(inodes: ReadonlySet<number>): number[] {
  const links = new Set([...inodes].map((inode) => `pipe:[${inode}]`));
  return namesIn("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => holdsOne(pid, links) && !isChildOf(pid, process.pid))
    .map(Number);
}
