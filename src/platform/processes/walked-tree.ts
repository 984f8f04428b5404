import { constants } from "node:os";
import { setTimeout as delay } from "node:timers/promises";

import type { Addon } from "../../native/index.ts";
import { membersOf } from "./members.ts";
import { type ProcessRow, rowsOf } from "./process-table.ts";
import type { ProcessTree } from "./process-tree.ts";

const { SIGKILL, SIGSTOP } = constants.signals;
const { ENOSYS, EPERM } = constants.errno;
/** Rounds of stopping newcomers before what was found so far is killed; each takes about a millisecond. */
const FREEZE_ROUNDS = 32;
const LONGEST_WAIT_MS = 50;

function isSame(one: ProcessRow, other: ProcessRow | undefined): boolean {
  return one.pid === other?.pid && one.start === other.start;
}

/**
 * A tree found by walking /proc; without one, or without pidfds, only the process group is reached. It cannot reach a
 * daemon that left the session and whose parent had died before: nothing in /proc links it to the tree any more.
 */
export class WalkedTree implements ProcessTree {
  readonly #addon: Addon;
  readonly #leader: number;
  /** Members that may not be signalled (EPERM); waiting for their end would be in vain. */
  readonly #immune: Map<number, ProcessRow> = new Map();
  /** Nobody beyond the group can be signalled without the risk that the id is another's by now. */
  #onlyGroup = false;

  constructor(addon: Addon, leader: number) {
    this.#addon = addon;
    this.#leader = leader;
  }

  /**
   * `contained` names more members, by id. It is asked after the look at all processes: what was seen under such an id is
   * a member, or it has ended and gets no signal.
   */
  signal(signal: number, contained: () => ReadonlySet<number> = () => new Set()): void {
    const rows = this.#processes();
    const members = this.#members(rows);
    if (members === undefined) {
      this.#addon.killGroup(this.#leader, signal);
      return;
    }
    const pids = new Set(members.map((row) => row.pid));
    const more = contained();
    const others = rows.filter((row) => more.has(row.pid) && !pids.has(row.pid) && row.pid !== process.pid);
    // The leader first: a shell whose child ends before would exit by itself, and not by the signal.
    const isLeader = (row: ProcessRow): number => Number(row.pid === this.#leader);
    const targets = [...members, ...others].toSorted((one, other) => isLeader(other) - isLeader(one));
    for (const row of targets) this.#send(row, signal);
  }

  async kill(): Promise<void> {
    const condemned = new Map<number, ProcessRow>();
    for (let waitMs = 1; this.#killOnce(condemned); waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) await delay(waitMs);
  }

  oomKilled(): boolean {
    return false;
  }

  release(): void {
    this.#immune.clear();
  }

  /**
   * False when nobody was left alive. Those that were killed are waited for by name: while they die, what linked them to
   * the tree may be gone before they are.
   */
  #killOnce(condemned: Map<number, ProcessRow>): boolean {
    const members = this.#freeze();
    if (members === undefined) {
      this.#addon.killGroup(this.#leader, SIGKILL);
      return this.#addon.peekEnd(this.#leader) === 0;
    }
    for (const member of members) {
      condemned.set(member.pid, member);
      this.#send(member, SIGKILL);
    }
    if (members.length > 0) return true;
    return this.#processes().some((row) => row.alive && isSame(row, condemned.get(row.pid)) && !this.#isImmune(row));
  }

  /**
   * Stops members until a look at all processes finds no running one. A stopped process neither forks nor loses its
   * children by exiting, so a tree that forks faster than it is killed is caught nevertheless.
   */
  #freeze(): readonly ProcessRow[] | undefined {
    const frozen = new Map<number, ProcessRow>();
    for (let round = 0; round < FREEZE_ROUNDS; round++) {
      const members = this.#members(this.#processes());
      if (members === undefined) return undefined;
      const newcomers = members.filter((member) => !isSame(member, frozen.get(member.pid)));
      if (newcomers.length === 0) return members;
      for (const member of newcomers) {
        frozen.set(member.pid, member);
        this.#send(member, SIGSTOP);
      }
    }
    return [...frozen.values()];
  }

  #processes(): ProcessRow[] {
    const table = this.#addon.processTable();
    return typeof table === "number" ? [] : rowsOf(table);
  }

  #members(rows: readonly ProcessRow[]): ProcessRow[] | undefined {
    if (this.#onlyGroup) return undefined;
    return membersOf(rows, this.#leader, process.pid)?.filter((row) => !this.#isImmune(row));
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
