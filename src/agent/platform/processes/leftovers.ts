import { constants } from "node:os";
import type { LeftoverProcesses } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { eventually, type TimeOf } from "../eventually.ts";
import { type Cgroup, NESTED_LIMIT } from "./cgroup.ts";
import { rowsOf } from "./process-table.ts";

const { SIGCONT, SIGKILL } = constants.signals;

/**
 * Opens the cgroup of a command that was released. Returns "removed" if the cgroup no longer exists, and "unreadable"
 * if it cannot be opened because descriptors or memory are exhausted.
 */
export type Reopen = () => Cgroup | "removed" | "unreadable";

/**
 * The processes in the cgroup of an ended command. All belong to the command, because cgroup names are not reused. Pids
 * and process group ids may be reused, so no process group is signalled, and each process is identified by its pid and
 * start time.
 */
export class CgroupLeftovers implements LeftoverProcesses {
  readonly #addon: Addon;
  readonly #reopen: Reopen;
  readonly #sessionClock: TimeOf | undefined;
  /** Pid and start time of each process that was found. */
  readonly #found = new Set<string>();

  constructor(addon: Addon, reopen: Reopen, sessionClock: TimeOf | undefined) {
    this.#addon = addon;
    this.#reopen = reopen;
    this.#sessionClock = sessionClock;
  }

  get found(): number {
    return this.#found.size;
  }

  signal(signal: number): Promise<void> {
    this.#with((cgroup) => {
      // The command may have frozen its own cgroup, and frozen processes do not handle signals.
      cgroup.write("cgroup.freeze", "0");
      this.#send(cgroup, [signal, SIGCONT]);
    });
    return Promise.resolve();
  }

  emptyWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, () => this.#with((cgroup) => isEmpty(cgroup)), { time: this.#sessionClock });
  }

  killWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, () =>
      this.#with((cgroup) => {
        if (isEmpty(cgroup)) return true;
        // Only records the processes, before they are killed. Sends them no signal.
        this.#send(cgroup, []);
        // Killing the whole cgroup fails if a privileged command has made the cgroup threaded.
        if (cgroup.holdsAgent() || !cgroup.kill()) this.#send(cgroup, [SIGKILL]);
        return isEmpty(cgroup);
      }),
    );
  }

  #send(cgroup: Cgroup, signals: readonly number[]): void {
    const listed = others(cgroup);
    const rows = listed.size === 0 ? -1 : this.#addon.processRows(Int32Array.from(listed));
    if (typeof rows === "number") return;
    // A member may end before its row is read from /proc, and another process may get its pid. So the members are read
    // again after the rows. A row counts only if its pid is still a member.
    const members = others(cgroup);
    for (const { pid, start } of rowsOf(rows)) {
      if (!members.has(pid)) continue;
      this.#found.add(`${pid}:${start}`);
      for (const signal of signals) this.#addon.signalProcess(pid, start, signal);
    }
  }

  /**
   * Opens the cgroup, passes it to `use`, and returns whether `use` returned true. If the cgroup cannot be opened, does
   * not call `use`: returns true if the cgroup was removed, otherwise false.
   */
  #with(use: (cgroup: Cgroup) => boolean | void): boolean {
    const cgroup = this.#reopen();
    if (typeof cgroup === "string") return cgroup === "removed";
    try {
      return use(cgroup) === true;
    } finally {
      cgroup.close();
    }
  }
}

/**
 * Pids in the cgroup, except for the agent and its launcher. A privileged command may have moved these two into its
 * cgroup.
 */
function others(cgroup: Cgroup): Set<number> {
  const members = cgroup.members(NESTED_LIMIT);
  members.delete(process.pid);
  members.delete(process.ppid);
  return members;
}

/** Whether the cgroup has no process of the command; false if the cgroup cannot be read now. */
function isEmpty(cgroup: Cgroup): boolean {
  const populated = cgroup.populated();
  return populated === false || (populated === true && cgroup.holdsAgent() && others(cgroup).size === 0);
}
