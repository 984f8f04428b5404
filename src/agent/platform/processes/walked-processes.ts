import { constants } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { ProcessSet, SessionLife } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { membersOf, type ProcessRow, ProcessTable } from "./process-table.ts";

const { SIGKILL, SIGSTOP } = constants.signals;
const { EMFILE, ENFILE, ENOMEM, ENOSYS, EPERM } = constants.errno;
/** Errnos of a temporary shortage, at which /proc cannot be read now. */
const FOR_NOW: ReadonlySet<number> = new Set([EMFILE, ENFILE, ENOMEM]);
/** Most rounds of stopping new members before all that were found are killed; each takes about a millisecond. */
const FREEZE_ROUNDS = 32;
const LONGEST_PAUSE_MS = 50;

/** The clock of a limit: real time, or the session's. */
export type TimeOf = Pick<SessionLife, "nowMs">;

const REAL_TIME: TimeOf = { nowMs: () => performance.now() };

/** Polls until `done` is true; false when the time is up. Pauses grow from a millisecond. */
export async function eventually(limitMs: number, done: () => boolean, time: TimeOf = REAL_TIME): Promise<boolean> {
  const deadlineMs = time.nowMs() + limitMs;
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    if (done()) return true;
    const leftMs = deadlineMs - time.nowMs();
    if (leftMs <= 0) return false;
    await delay(Math.min(pauseMs, leftMs));
  }
}

/** The living members; `known` are those found before, by id. Undefined where the rows lack the agent: no /proc. */
export type FindMembers = (
  rows: readonly ProcessRow[],
  known: ReadonlyMap<number, ProcessRow>,
) => readonly ProcessRow[] | undefined;

type Look =
  | { readonly kind: "seen"; readonly members: readonly ProcessRow[]; readonly rows: readonly ProcessRow[] }
  /** No descriptors or memory now. */
  | { readonly kind: "not_now" }
  /** No /proc or no pidfds: beyond the group, a signal might hit another process that got the id meanwhile. */
  | { readonly kind: "only_group" };

/** Whether both rows are of one process: the kernel reuses ids. */
function isSame(one: ProcessRow, other: ProcessRow | undefined): boolean {
  return one.pid === other?.pid && one.start === other.start;
}

/** Processes that are found by walking /proc. Without /proc or pidfds it reaches only the leader's process group. */
export class WalkedProcesses implements ProcessSet {
  readonly #addon: Addon;
  readonly #leader: number;
  readonly #find: FindMembers;
  readonly #table: ProcessTable;
  readonly #life: TimeOf | undefined;
  /** Members found so far. They stay members when the processes that linked them to the leader have died. */
  readonly #known: Map<number, ProcessRow> = new Map();
  /** Members that the agent may not signal (EPERM), for which it does not wait. */
  readonly #immune: Map<number, ProcessRow> = new Map();
  #onlyGroup = false;
  #released = false;

  constructor(addon: Addon, leader: number, find: FindMembers, { table, life }: SharedSources = {}) {
    this.#addon = addon;
    this.#table = table ?? new ProcessTable(addon);
    this.#life = life;
    this.#leader = leader;
    this.#find = find;
  }

  signal(signal: number): void {
    if (this.#released) return;
    const look = this.#look(true);
    if (look.kind !== "seen") {
      this.#addon.killGroup(this.#leader, signal);
      return;
    }
    // Signal the leader first: a shell whose child ends before it would exit by itself, not by the signal.
    const isLeader = (row: ProcessRow): number => Number(row.pid === this.#leader);
    for (const row of look.members.toSorted((one, other) => isLeader(other) - isLeader(one))) this.#send(row, signal);
  }

  emptyWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, () => this.empty() ?? this.#endGroupOfLeader(), this.#life);
  }

  killWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, () => this.killOnce());
  }

  /** Whether no member is alive; undefined: unknown. */
  empty(): boolean | undefined {
    if (this.#released) return true;
    const look = this.#look(true);
    return look.kind === "seen" ? look.members.length === 0 : undefined;
  }

  /** Kills all that it finds, and remembers them: their links may be gone before they are. True when none was left. */
  killOnce(): boolean {
    if (this.#released) return true;
    const look = this.#freeze();
    if (look.kind !== "seen") {
      this.#addon.killGroup(this.#leader, SIGKILL);
      return look.kind === "only_group" && this.#addon.peekEnd(this.#leader) !== 0;
    }
    for (const member of look.members) this.#send(member, SIGKILL);
    if (look.members.length > 0) return false;
    return !look.rows.some((row) => row.alive && isSame(row, this.#known.get(row.pid)) && !this.#isImmune(row));
  }

  /** Records that the leader was reaped: its id may belong to another process now. */
  release(): void {
    this.#released = true;
    this.#known.clear();
    this.#immune.clear();
  }

  /** Stops members until no running one is found: a stopped one neither forks nor orphans its children. */
  #freeze(): Look {
    const frozen = new Map<number, ProcessRow>();
    let look = this.#look();
    for (let round = 0; round < FREEZE_ROUNDS && look.kind === "seen"; round++) {
      const newcomers = look.members.filter((member) => !isSame(member, frozen.get(member.pid)));
      if (newcomers.length === 0) return look;
      for (const member of newcomers) {
        frozen.set(member.pid, member);
        this.#send(member, SIGSTOP);
      }
      look = this.#look();
    }
    return look;
  }

  /** Without a usable /proc only the leader's end can be seen: kills the rest of its group then, and returns true. */
  #endGroupOfLeader(): boolean {
    if (this.#look(true).kind !== "only_group" || this.#addon.peekEnd(this.#leader) === 0) return false;
    this.#addon.killGroup(this.#leader, SIGKILL);
    return true;
  }

  #look(mayBeShared: boolean = false): Look {
    if (this.#onlyGroup) return { kind: "only_group" };
    const rows = mayBeShared ? this.#table.recentLook(this.#leader) : this.#table.look();
    if (typeof rows === "number") return { kind: FOR_NOW.has(-rows) ? "not_now" : "only_group" };
    const found = this.#find(rows, this.#known);
    if (found === undefined) return { kind: "only_group" };
    for (const member of found) this.#known.set(member.pid, member);
    return { kind: "seen", rows, members: found.filter((row) => !this.#isImmune(row)) };
  }

  #isImmune(row: ProcessRow): boolean {
    return isSame(row, this.#immune.get(row.pid));
  }

  #send(row: ProcessRow, signal: number): void {
    if (this.#onlyGroup) return;
    const result = this.#addon.signalProcess(row.pid, row.start, signal);
    if (result === -EPERM) this.#immune.set(row.pid, row);
    if (result !== -ENOSYS) return;
    this.#onlyGroup = true;
    this.#addon.killGroup(this.#leader, signal);
  }
}

/** What all sets of processes share. */
export interface SharedSources {
  readonly table?: ProcessTable;
  /** The clock of their grace period: a frozen process acts on no signal but SIGKILL. Default: real time. */
  readonly life?: TimeOf | undefined;
}

/** Further sources of a tree's members. */
export interface TreeSources extends SharedSources {
  /** Ids of more members. Read after the process table, so that an id in both was a member or has ended. */
  readonly more?: () => ReadonlySet<number>;
  /** The process that adopts the tree's orphans; undefined if it has other children too. */
  readonly adopter?: number | undefined;
}

/** The leader and all descendants that can be linked to it. */
export function walkedTree(
  addon: Addon,
  leader: number,
  { more, adopter, ...shared }: TreeSources = {},
): WalkedProcesses {
  const find: FindMembers = (rows, known) => {
    const isRoot = (row: ProcessRow): boolean =>
      (adopter !== undefined && row.parent === adopter) || isSame(row, known.get(row.pid));
    const members = membersOf(rows, leader, process.pid, isRoot);
    if (members === undefined || more === undefined) return members;
    const pids = more();
    const seen = new Set(members.map((row) => row.pid));
    return members.concat(rows.filter((row) => row.alive && pids.has(row.pid) && !seen.has(row.pid)));
  };
  return new WalkedProcesses(addon, leader, find, shared);
}

/** The processes of the leader's session. */
export function walkedSession(addon: Addon, leader: number, shared: SharedSources): WalkedProcesses {
  const find: FindMembers = (rows) =>
    rows.some((row) => row.pid === process.pid) ? rows.filter((row) => row.alive && row.session === leader) : undefined;
  return new WalkedProcesses(addon, leader, find, shared);
}
