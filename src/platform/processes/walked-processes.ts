import { constants } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { ProcessSet } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { membersOf, type ProcessRow, ProcessTable } from "./process-table.ts";

const { SIGKILL, SIGSTOP } = constants.signals;
const { EMFILE, ENFILE, ENOMEM, ENOSYS, EPERM } = constants.errno;
/** A look at /proc failed for want of something that comes back. */
const FOR_NOW: ReadonlySet<number> = new Set([EMFILE, ENFILE, ENOMEM]);
/** Rounds of stopping newcomers before what was found so far is killed; each takes about a millisecond. */
const FREEZE_ROUNDS = 32;
const LONGEST_PAUSE_MS = 50;

/** Looks again and again until `done` is true, or the time is up: false. Pauses grow from a millisecond. */
export async function eventually(limitMs: number, done: () => boolean): Promise<boolean> {
  const deadlineMs = performance.now() + limitMs;
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    if (done()) return true;
    const leftMs = deadlineMs - performance.now();
    if (leftMs <= 0) return false;
    await delay(Math.min(pauseMs, leftMs));
  }
}

/**
 * Finds the living members among all processes. `known` are those that were found before, by id. Undefined when the rows do
 * not show the agent itself: there is no usable /proc.
 */
export type FindMembers = (
  rows: readonly ProcessRow[],
  known: ReadonlyMap<number, ProcessRow>,
) => readonly ProcessRow[] | undefined;

type Look =
  | { readonly kind: "seen"; readonly members: readonly ProcessRow[]; readonly rows: readonly ProcessRow[] }
  /** For want of descriptors or memory. */
  | { readonly kind: "not_now" }
  /** No /proc, or no pidfds: nobody beyond the group can be signalled without the risk that the id is another's by now. */
  | { readonly kind: "only_group" };

/** Whether this is that very process: ids are given again. */
function isSame(one: ProcessRow, other: ProcessRow | undefined): boolean {
  return one.pid === other?.pid && one.start === other.start;
}

/** Processes found by walking /proc; without one, or without pidfds, only the leader's process group is reached. */
export class WalkedProcesses implements ProcessSet {
  readonly #addon: Addon;
  readonly #leader: number;
  readonly #find: FindMembers;
  readonly #table: ProcessTable;
  /** Members so far: one stays a member when all that linked it to the leader has died. */
  readonly #known: Map<number, ProcessRow> = new Map();
  /** Members that may not be signalled (EPERM); waiting for their end would be in vain. */
  readonly #immune: Map<number, ProcessRow> = new Map();
  #onlyGroup = false;
  #released = false;

  constructor(addon: Addon, leader: number, find: FindMembers, table: ProcessTable = new ProcessTable(addon)) {
    this.#addon = addon;
    this.#table = table;
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
    // The leader first: a shell whose child ends before would exit by itself, and not by the signal.
    const isLeader = (row: ProcessRow): number => Number(row.pid === this.#leader);
    for (const row of look.members.toSorted((one, other) => isLeader(other) - isLeader(one))) this.#send(row, signal);
  }

  emptyWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, () => this.empty() ?? this.#endGroupOfLeader());
  }

  killWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, () => this.killOnce());
  }

  /** No member is alive; undefined where that cannot be told. */
  empty(): boolean | undefined {
    if (this.#released) return true;
    const look = this.#look(true);
    return look.kind === "seen" ? look.members.length === 0 : undefined;
  }

  /**
   * True when nobody was left alive. Those that were killed are waited for by name: while they die, what linked them to the
   * rest may be gone before they are.
   */
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

  /** The leader has been reaped: its id names nobody any more. */
  release(): void {
    this.#released = true;
    this.#known.clear();
    this.#immune.clear();
  }

  /**
   * Stops members until a look at all processes finds no running one. A stopped process neither forks nor loses its
   * children by exiting, so members that fork faster than they are killed are caught nevertheless.
   */
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

  /**
   * Where nobody but the leader can be looked at, the grace is the leader's: whoever is left of its group then is killed.
   * True when the leader has ended.
   */
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

/** What finding a tree takes beside its leader. */
export interface TreeSources {
  /** Ids of more members. Asked after the look at all processes: who has one of them now was a member, or has ended. */
  readonly more?: () => ReadonlySet<number>;
  /** The process that orphans of the tree become children of; undefined where it has other children as well. */
  readonly adopter?: number | undefined;
  readonly table?: ProcessTable;
}

/** The leader and all its descendants, as far as anything links them to it. */
export function walkedTree(addon: Addon, leader: number, { more, adopter, table }: TreeSources = {}): WalkedProcesses {
  const find: FindMembers = (rows, known) => {
    const isRoot = (row: ProcessRow): boolean =>
      (adopter !== undefined && row.parent === adopter) || isSame(row, known.get(row.pid));
    const members = membersOf(rows, leader, process.pid, isRoot);
    if (members === undefined || more === undefined) return members;
    const pids = more();
    const seen = new Set(members.map((row) => row.pid));
    return members.concat(rows.filter((row) => row.alive && pids.has(row.pid) && !seen.has(row.pid)));
  };
  return new WalkedProcesses(addon, leader, find, table);
}

/** Who is in the session that the leader leads. */
export function walkedSession(addon: Addon, leader: number, table: ProcessTable): WalkedProcesses {
  const find: FindMembers = (rows) =>
    rows.some((row) => row.pid === process.pid) ? rows.filter((row) => row.alive && row.session === leader) : undefined;
  return new WalkedProcesses(addon, leader, find, table);
}
