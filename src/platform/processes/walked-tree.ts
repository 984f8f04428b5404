import { constants } from "node:os";
import { setTimeout as delay } from "node:timers/promises";

import type { Addon } from "../../native/index.ts";
import { membersOf } from "./members.ts";
import type { ProcessTree } from "./process-tree.ts";

const { SIGKILL, SIGSTOP } = constants.signals;
/** Rounds of stopping newcomers before what was found so far is killed; each takes about a millisecond. */
const FREEZE_ROUNDS = 32;
const LONGEST_WAIT_MS = 50;

/**
 * A tree found by walking /proc; without one, only the process group is reached. It cannot reach a daemon that left the
 * session and whose parent had died before: nothing in /proc links it to the tree any more.
 */
export class WalkedTree implements ProcessTree {
  readonly #addon: Addon;
  readonly #leader: number;
  /** Members that may not be signalled (EPERM); waiting for their end would be in vain. */
  readonly #immune: Set<number> = new Set();

  constructor(addon: Addon, leader: number) {
    this.#addon = addon;
    this.#leader = leader;
  }

  signal(signal: number): void {
    const members = this.#members();
    if (members === undefined) this.#addon.killGroup(this.#leader, signal);
    else for (const pid of members) this.#send(pid, signal);
  }

  async kill(): Promise<void> {
    for (let waitMs = 1; this.#killOnce(); waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) await delay(waitMs);
  }

  /** False when nobody was left alive. */
  #killOnce(): boolean {
    const members = this.#freeze();
    if (members === undefined) {
      this.#addon.killGroup(this.#leader, SIGKILL);
      return this.#addon.peekEnd(this.#leader) === 0;
    }
    for (const pid of members) this.#send(pid, SIGKILL);
    return members.length > 0;
  }

  /**
   * Stops members until a look at all processes finds no running one. A stopped process neither forks nor loses its
   * children by exiting, so a tree that forks faster than it is killed is caught nevertheless.
   */
  #freeze(): number[] | undefined {
    const frozen = new Set<number>();
    for (let round = 0; round < FREEZE_ROUNDS; round++) {
      const members = this.#members();
      if (members === undefined) return undefined;
      const newcomers = members.filter((pid) => !frozen.has(pid));
      if (newcomers.length === 0) return members;
      for (const pid of newcomers) {
        frozen.add(pid);
        this.#send(pid, SIGSTOP);
      }
    }
    return [...frozen];
  }

  #members(): number[] | undefined {
    const table = this.#addon.processTable();
    if (typeof table === "number") return undefined;
    return membersOf(table, this.#leader, process.pid)?.filter((pid) => !this.#immune.has(pid));
  }

  #send(pid: number, signal: number): void {
    if (this.#addon.kill(pid, signal) === -constants.errno.EPERM) this.#immune.add(pid);
  }
}
