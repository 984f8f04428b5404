import { constants } from "node:os";
import { type ProcessSet, yieldToEventLoop } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { eventually, type TimeOf } from "../eventually.ts";
import { type ProcessReadings, SessionTable } from "./process-readings.ts";
import { isSame, membersOf, type ProcessRow, ProcessTable, rowsOf } from "./process-table.ts";

const { SIGCONT, SIGKILL, SIGSTOP } = constants.signals;
const { EMFILE, ENFILE, ENOMEM, ENOSYS, EPERM } = constants.errno;
/** Errnos of a temporary shortage: /proc cannot be read at the moment. */
const TEMPORARY: ReadonlySet<number> = new Set([EMFILE, ENFILE, ENOMEM]);
/** Largest number of rounds in which newly found processes are stopped before all processes of the set are killed. */
const STOP_ROUNDS = 32;
/**
 * Largest number of times that a search lists the processes of a session. It lists them again if a process has ended,
 * because this process may have left a child that is only in the next listing.
 */
const ATTEMPTS = 4;
/** Number of signals to send per tick of the event loop. Each takes 15 us. */
const SENT_AT_ONCE = 256;
/** The living members of a set of processes, as one search found them. */
interface Found {
  readonly members: readonly ProcessRow[];
  /** False if the search may have missed a child of a member that ended during the search. */
  readonly isComplete: boolean;
}

/** How to find the members of a set of processes, such as a session or a process tree. */
export interface Search {
  /**
   * Finds the living members. `known` has the members that earlier scans found, by pid. If /proc is not usable, the
   * result is undefined. If the search fails, the result is a negated errno.
   */
  find(known: ReadonlyMap<number, ProcessRow>, urgent: boolean): Promise<Found | number | undefined>;
  /** Whether a process is still a member. Called with a process that an earlier scan found, and that is still alive. */
  stillBelongs(row: ProcessRow): boolean;
  /** Whether it is certain, without a scan, that only members that were already found can be alive. */
  excludesOthers?(): boolean;
}

type Scan =
  | ({ readonly kind: "seen" } & Found)
  /** /proc cannot be read at present, because descriptors or memory are exhausted. */
  | { readonly kind: "not_now" }
  /**
   * Only the leader's process group can be signalled, because /proc or pidfds are missing. Single processes are not
   * signalled without a pidfd, because the signal could reach a later process with the same pid.
   */
  | { readonly kind: "only_group" };

/**
 * A set of processes that is found by walking /proc. As long as a known member lives, no scan is needed to know that
 * the set is not empty. Without /proc or pidfds, only the leader's process group can be signalled.
 */
export class WalkedProcesses implements ProcessSet {
  readonly #addon: Addon;
  readonly #leader: number;
  readonly #search: Search;
  readonly #sessionClock: TimeOf | undefined;
  /** Processes of the set that were found so far, by pid. A descendant stays in the set even if its parent has died. */
  readonly #known: Map<number, ProcessRow> = new Map();
  /** Processes of the set that the agent may not signal (EPERM). The agent does not wait for them. */
  readonly #immune: Map<number, ProcessRow> = new Map();
  /** Whether only the process group can be signalled, because there are no pidfds. */
  #onlyGroup = false;
  /** Whether the last scan found no usable /proc. */
  #isBlind = false;
  /** Whether the last scan found no new process of the set. */
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
    // The leader is signalled first. Otherwise its child might die first, and a leader that is a shell could then exit
    // normally before it gets the signal.
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

  /**
   * True if all processes of the set have ended. False if one is alive, or if processes fork faster than a scan can
   * follow. Undefined if no scan is possible.
   */
  async empty(): Promise<boolean | undefined> {
    if (this.#someKnownLives()) return false;
    if (this.#released || this.#search.excludesOthers?.() === true) return true;
    const scan = await this.#scan(false);
    if (this.#released) return true;
    return scan.kind === "seen" ? scan.isComplete && scan.members.length === 0 : undefined;
  }

  /**
   * Kills all members that a scan finds. Remembers them, because a later scan may not find a survivor whose parents are
   * gone. Returns true if no member was left.
   */
  async killOnce(): Promise<boolean> {
    // If the last scan found new members, this scan starts without delay. Otherwise members that fork could outrun it.
    const scan = await this.#stopAll(!this.#isSettled);
    if (this.#released) return true;
    if (scan.kind !== "seen") {
      this.#addon.killGroup(this.#leader, SIGKILL);
      return scan.kind === "only_group" && this.#addon.peekEnd(this.#leader) !== 0;
    }
    await this.#sendAll(scan.members, SIGKILL);
    return scan.isComplete && scan.members.length === 0 && !this.#someKnownLives();
  }

  /** Records that the leader was reaped: from now on its pid may belong to another process. */
  release(): void {
    this.#released = true;
    this.#known.clear();
    this.#immune.clear();
  }

  /**
   * Sends SIGSTOP to the members that a scan finds, and scans again until a scan finds no new member. A stopped process
   * can neither fork nor orphan its children. The leader's process group is stopped before the first scan, so that
   * processes that fork in a loop cannot outrun the scans. If SIGSTOP arrives during a fork, the kernel aborts the
   * fork, and repeats it when the process continues (ERESTARTNOINTR in copy_process).
   */
  async #stopAll(urgent: boolean): Promise<Scan> {
    const stopped = new Map<number, ProcessRow>();
    if (!this.#released) this.#addon.killGroup(this.#leader, SIGSTOP);
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

  /**
   * Used in a guest without a usable /proc. If the leader has exited, kills the rest of its process group and returns
   * true.
   */
  #endGroupOfLeader(): boolean {
    if (!this.#isBlind || this.#addon.peekEnd(this.#leader) === 0) return false;
    this.#addon.killGroup(this.#leader, SIGKILL);
    return true;
  }

  async #scan(urgent: boolean): Promise<Scan> {
    this.#isBlind = this.#onlyGroup || this.#released;
    if (this.#isBlind) return { kind: "only_group" };
    const found = await this.#search.find(this.#known, urgent);
    if (typeof found === "number" && TEMPORARY.has(-found)) return { kind: "not_now" };
    this.#isBlind = found === undefined || typeof found === "number" || this.#released;
    if (found === undefined || typeof found === "number" || this.#released) return { kind: "only_group" };
    const { members, isComplete } = found;
    this.#isSettled = isComplete && members.every((row) => isSame(row, this.#known.get(row.pid)));
    for (const member of members) this.#known.set(member.pid, member);
    return { kind: "seen", members: members.filter((row) => !this.#isImmune(row)), isComplete };
  }

  /** Whether any known process of the set is alive. Processes that the agent may not signal are ignored. */
  #someKnownLives(): boolean {
    for (const [pid, known] of this.#known) {
      const read = this.#addon.processRows(Int32Array.of(pid));
      if (typeof read === "number") return true;
      const [row] = rowsOf(read);
      if (row === undefined || !isSame(row, known)) this.#known.delete(pid);
      else if (row.alive && this.#search.stillBelongs(row) && !this.#isImmune(row)) return true;
    }
    return false;
  }

  #isImmune(row: ProcessRow): boolean {
    return isSame(row, this.#immune.get(row.pid));
  }

  /** Yields between batches, so that thousands of signals do not delay other calls. */
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

/** What every search for processes uses: shared readings of /proc, and the clock for grace periods. */
export interface SharedSources {
  readonly readings: ProcessReadings;
  /**
   * The clock for grace periods. It stops while the session is frozen, because frozen processes handle no signals.
   * Default: real time.
   */
  readonly sessionClock?: TimeOf | undefined;
}

/** The sources for the search for one process tree. The sources in SharedSources are the same for all trees. */
export interface TreeSources extends SharedSources {
  /**
   * Returns the pids of the processes in the tree's cgroup. The search adds them to the processes that it has found by
   * their parents. Called after the process table was read.
   */
  readonly more?: () => ReadonlySet<number>;
  /** The process that adopts the orphans of this process tree, and of no other tree. Undefined if there is none. */
  readonly adopter?: number | undefined;
}

/** The processes of a tree: the leader, and all descendants that can be traced to it by their parents. */
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
    if (members === undefined) return undefined;
    const isComplete = table.hasAllOf(new Set([leader, ...[...roots, ...members].map(({ session }) => session)]));
    if (more === undefined) return { members, isComplete };
    const seen = new Set(members.map((row) => row.pid));
    const others = [...more()].filter((pid) => !seen.has(pid));
    const born = others.filter((pid) => table.get(pid) === undefined);
    const inside = [...rows(others), ...rowsOfNew(addon, born, more)].filter(({ alive }) => alive);
    return { members: members.concat(inside), isComplete };
  };
  return new WalkedProcesses(addon, leader, { find, stillBelongs: () => true }, sessionClock);
}

/**
 * Returns the rows of members that were started after the process table was read. A member may end before its row is
 * read, and another process may get its pid. So calls `more` after reading the rows, and drops the rows of pids that
 * are no longer in its result.
 */
function rowsOfNew(addon: Addon, pids: readonly number[], more: () => ReadonlySet<number>): ProcessRow[] {
  const rows = pids.length === 0 ? -1 : addon.processRows(Int32Array.from(pids));
  if (typeof rows === "number") return [];
  const members = more();
  return rowsOf(rows).filter(({ pid }) => members.has(pid));
}

/** The methods of a command's cgroup that `walkedSession` uses. */
export interface Container {
  holds(pids: readonly number[]): boolean;
  populated(): boolean | undefined;
}

/**
 * The processes of the session that `leader` has created (setsid(2)). Usually only a scan can detect the end of the
 * session. The exception is a session whose processes were all found in `cgroup`: it has ended as soon as `cgroup` is
 * empty.
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
    // A leader that has ended is a zombie until the agent reaps it, and has no further children.
    let ended: ReadonlySet<number> = new Set(addon.peekEnd(leader) === 0 ? [] : [leader]);
    for (let attempt = 1; ; attempt++) {
      const sessions = await readings.sessions.next(urgent || attempt > 1);
      if (!(sessions instanceof SessionTable)) return sessions;
      const listed = sessions.sessions.get(leader) ?? [];
      const read = addon.processRows(Int32Array.from(listed));
      if (typeof read === "number") return read;
      const members = rowsOf(read).filter(keeps);
      const living = new Set(members.map(({ pid }) => pid));
      if (members.length > 0) areInside = areInside !== false && cgroup?.holds([...living]) === true;
      // A process that has ended since the previous listing may have left a child that is not in this listing.
      const isComplete = !sessions.hasUnknown && listed.every((pid) => living.has(pid) || ended.has(pid));
      if (members.length > 0 || isComplete || attempt === ATTEMPTS) return { members, isComplete };
      ended = new Set(listed);
    }
  };
  const excludesOthers = (): boolean => areInside === true && cgroup?.populated() === false;
  return new WalkedProcesses(addon, leader, { find, stillBelongs: keeps, excludesOthers }, sessionClock);
}
