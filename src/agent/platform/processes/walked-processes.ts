import { constants } from "node:os";
import { type ProcessSet, yieldToEventLoop } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { eventually, type TimeOf } from "../eventually.ts";
import { type ProcessReadings, SessionTable } from "./process-readings.ts";
import { isSame, membersOf, type ProcessRow, ProcessTable, rowsOf } from "./process-table.ts";

const { SIGCONT, SIGKILL, SIGSTOP } = constants.signals;
const { EMFILE, ENFILE, ENOMEM, ENOSYS, EPERM } = constants.errno;
/** Errnos of a temporary shortage, at which /proc cannot be read now. */
const FOR_NOW: ReadonlySet<number> = new Set([EMFILE, ENFILE, ENOMEM]);
/** Most rounds of stopping new members before all that were found are killed. */
const STOP_ROUNDS = 32;
/** Most attempts to list a session of which those that were listed have ended. */
const ATTEMPTS = 4;
/** Signals that are sent in one tick; 15 us each. */
const SENT_AT_ONCE = 256;
/** How the members of a set are found. */
export interface Search {
  /**
   * The living members; `known` are those found before, by id. Undefined: there is no usable /proc; a number: a negated
   * errno.
   */
  find(known: ReadonlyMap<number, ProcessRow>, urgent: boolean): Promise<readonly ProcessRow[] | number | undefined>;
  /** Whether a process that was a member still is one while it lives. */
  keeps(row: ProcessRow): boolean;
  /** Whether it is certain, without a scan, that none lives beside those found before. */
  excludesOthers?(): boolean;
}

type Scan =
  | { readonly kind: "seen"; readonly members: readonly ProcessRow[] }
  /** No descriptors or memory now. */
  | { readonly kind: "not_now" }
  /** No /proc or no pidfds: beyond the group, a signal might hit another process that got the id meanwhile. */
  | { readonly kind: "only_group" };

/**
 * Processes that are found by walking /proc. As long as one that it has found lives, it need not scan for others.
 * Without /proc or pidfds it reaches only the leader's process group.
 */
export class WalkedProcesses implements ProcessSet {
  readonly #addon: Addon;
  readonly #leader: number;
  readonly #search: Search;
  readonly #sessionClock: TimeOf | undefined;
  /** Members found so far. They stay members when the processes that linked them to the leader have died. */
  readonly #known: Map<number, ProcessRow> = new Map();
  /** Members that the agent may not signal (EPERM), for which it does not wait. */
  readonly #immune: Map<number, ProcessRow> = new Map();
  /** There are no pidfds. */
  #onlyGroup = false;
  /** The last scan found no usable /proc. */
  #isBlind = false;
  /** The last scan found nobody new. */
  #isSettled = false;
  #released = false;

  constructor(addon: Addon, leader: number, search: Search, sessionClock?: TimeOf) {
    this.#addon = addon;
    this.#leader = leader;
    this.#search = search;
    this.#sessionClock = sessionClock;
  }

  async signal(signal: number): Promise<void> {
    const scan = await this.#scan(true);
    if (this.#released) return;
    if (scan.kind !== "seen") {
      for (const each of [signal, SIGCONT]) this.#addon.killGroup(this.#leader, each);
      return;
    }
    // Signal the leader first: a shell whose child ends before it would exit by itself, not by the signal.
    const isLeader = (row: ProcessRow): number => Number(row.pid === this.#leader);
    const members = scan.members.toSorted((one, other) => isLeader(other) - isLeader(one));
    for (const each of [signal, SIGCONT]) await this.#sendAll(members, each);
  }

  emptyWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, async () => (await this.empty()) ?? this.#endGroupOfLeader(), {
      time: this.#sessionClock,
    });
  }

  killWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, () => this.killOnce());
  }

  /** Whether no member is alive; undefined: unknown. */
  async empty(): Promise<boolean | undefined> {
    if (this.#someKnownLives()) return false;
    if (this.#released || this.#search.excludesOthers?.() === true) return true;
    const scan = await this.#scan(false);
    if (this.#released) return true;
    return scan.kind === "seen" ? scan.members.length === 0 : undefined;
  }

  /** Kills all that it finds, and remembers them: their links may be gone before they are. True when none was left. */
  async killOnce(): Promise<boolean> {
    // While new ones appear, each round must overtake them.
    const scan = await this.#stopAll(!this.#isSettled);
    if (this.#released) return true;
    if (scan.kind !== "seen") {
      this.#addon.killGroup(this.#leader, SIGKILL);
      return scan.kind === "only_group" && this.#addon.peekEnd(this.#leader) !== 0;
    }
    await this.#sendAll(scan.members, SIGKILL);
    return scan.members.length === 0 && !this.#someKnownLives();
  }

  /** Records that the leader was reaped: its id may belong to another process now. */
  release(): void {
    this.#released = true;
    this.#known.clear();
    this.#immune.clear();
  }

  /** Stops members until no running one is found: a stopped one neither forks nor orphans its children. */
  async #stopAll(urgent: boolean): Promise<Scan> {
    const stopped = new Map<number, ProcessRow>();
    let scan = await this.#scan(urgent);
    for (let round = 0; round < STOP_ROUNDS && scan.kind === "seen"; round++) {
      const newcomers = scan.members.filter((member) => !isSame(member, stopped.get(member.pid)));
      if (newcomers.length === 0) return scan;
      for (const member of newcomers) stopped.set(member.pid, member);
      await this.#sendAll(newcomers, SIGSTOP);
      scan = await this.#scan(true);
    }
    return scan;
  }

  /** Without a usable /proc only the leader's end can be seen: kills the rest of its group then, and returns true. */
  #endGroupOfLeader(): boolean {
    if (!this.#isBlind || this.#addon.peekEnd(this.#leader) === 0) return false;
    this.#addon.killGroup(this.#leader, SIGKILL);
    return true;
  }

  async #scan(urgent: boolean): Promise<Scan> {
    this.#isBlind = this.#onlyGroup || this.#released;
    if (this.#isBlind) return { kind: "only_group" };
    const found = await this.#search.find(this.#known, urgent);
    if (typeof found === "number" && FOR_NOW.has(-found)) return { kind: "not_now" };
    this.#isBlind = found === undefined || typeof found === "number" || this.#released;
    if (found === undefined || typeof found === "number" || this.#released) return { kind: "only_group" };
    this.#isSettled = found.every((row) => isSame(row, this.#known.get(row.pid)));
    for (const member of found) this.#known.set(member.pid, member);
    return { kind: "seen", members: found.filter((row) => !this.#isImmune(row)) };
  }

  /** Whether one of those found before still lives, and is waited for. */
  #someKnownLives(): boolean {
    for (const [pid, known] of this.#known) {
      const read = this.#addon.processRows(Int32Array.of(pid));
      if (typeof read === "number") return true;
      const [row] = rowsOf(read);
      if (row === undefined || !isSame(row, known)) this.#known.delete(pid);
      else if (row.alive && this.#search.keeps(row) && !this.#isImmune(row)) return true;
    }
    return false;
  }

  #isImmune(row: ProcessRow): boolean {
    return isSame(row, this.#immune.get(row.pid));
  }

  /** Thousands of signals leave time for other calls. */
  async #sendAll(rows: readonly ProcessRow[], signal: number): Promise<void> {
    for (const [index, row] of rows.entries()) {
      if (index % SENT_AT_ONCE === SENT_AT_ONCE - 1) await yieldToEventLoop();
      if (this.#released || this.#onlyGroup) return;
      this.#send(row, signal);
    }
  }

  #send(row: ProcessRow, signal: number): void {
    const result = this.#addon.signalProcess(row.pid, row.start, signal);
    if (result === -EPERM) this.#immune.set(row.pid, row);
    if (result !== -ENOSYS) return;
    this.#onlyGroup = true;
    this.#addon.killGroup(this.#leader, signal);
  }
}

/** What all sets of processes share. */
export interface SharedSources {
  readonly readings: ProcessReadings;
  /** The clock of their grace period: a frozen process acts on no signal but SIGKILL. Default: real time. */
  readonly sessionClock?: TimeOf | undefined;
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
  { readings, sessionClock, more, adopter }: TreeSources,
): WalkedProcesses {
  const find: Search["find"] = async (known, urgent) => {
    const table = await readings.table.next(urgent);
    if (!(table instanceof ProcessTable)) return table;
    const rows = (pids: Iterable<number>): ProcessRow[] => [...pids].flatMap((pid) => table.get(pid) ?? []);
    const roots = rows(known.keys()).filter((row) => isSame(row, known.get(row.pid)));
    if (adopter !== undefined) roots.push(...table.childrenOf(adopter));
    const members = membersOf(table, leader, process.pid, roots);
    if (members === undefined || more === undefined) return members;
    const seen = new Set(members.map((row) => row.pid));
    const others = [...more()].filter((pid) => !seen.has(pid));
    const born = others.filter((pid) => table.get(pid) === undefined);
    return members.concat([...rows(others), ...rowsOfNew(addon, born, more)].filter(({ alive }) => alive));
  };
  return new WalkedProcesses(addon, leader, { find, keeps: () => true }, sessionClock);
}

/** Rows of members that were born after the table was read. One that is no member afterwards has ended. */
function rowsOfNew(addon: Addon, pids: readonly number[], more: () => ReadonlySet<number>): ProcessRow[] {
  const rows = pids.length === 0 ? -1 : addon.processRows(Int32Array.from(pids));
  if (typeof rows === "number") return [];
  const members = more();
  return rowsOf(rows).filter(({ pid }) => members.has(pid));
}

/** What a command's cgroup tells of the processes in it. */
export interface Container {
  holds(pids: readonly number[]): boolean;
  populated(): boolean | undefined;
}

/**
 * The processes of the leader's session. As long as all that were found were in the command's cgroup, its end is that
 * of the session.
 */
export function walkedSession(
  addon: Addon,
  leader: number,
  { readings, sessionClock }: SharedSources,
  cgroup?: Container,
): WalkedProcesses {
  let areInside: boolean | undefined;
  const keeps = (row: ProcessRow): boolean => row.alive && row.session === leader;
  const find: Search["find"] = async (_, urgent) => {
    for (let attempt = 1; ; attempt++) {
      const sessions = await readings.sessions.next(urgent || attempt > 1);
      if (!(sessions instanceof SessionTable)) return sessions;
      const listed = sessions.sessions.get(leader) ?? [];
      const read = addon.processRows(Int32Array.from(listed));
      if (typeof read === "number") return read;
      const rows = rowsOf(read);
      const members = rows.filter(keeps);
      if (members.length > 0) areInside = areInside !== false && cgroup?.holds(members.map(({ pid }) => pid)) === true;
      // One that has ended since the list may have left a child that was not listed.
      if (members.length > 0 || rows.length === listed.length || attempt === ATTEMPTS) return members;
    }
  };
  const excludesOthers = (): boolean => areInside === true && cgroup?.populated() === false;
  return new WalkedProcesses(addon, leader, { find, keeps, excludesOthers }, sessionClock);
}
