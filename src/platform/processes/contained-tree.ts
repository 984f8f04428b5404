import type { ProcessSet } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import type { Cgroup } from "./cgroup.ts";
import type { ProcessTable } from "./process-table.ts";
import { eventually, walkedTree, type WalkedProcesses } from "./walked-processes.ts";

/**
 * A tree in a cgroup of its own, which processes do not leave by double forks or new sessions. But a privileged process
 * can move to another cgroup, and change or remove its own. So processes that a walk of /proc finds count too, and the
 * walk answers what the cgroup cannot.
 */
export class ContainedTree implements ProcessSet {
  readonly #cgroup: Cgroup;
  readonly #walked: WalkedProcesses;

  constructor(addon: Addon, cgroup: Cgroup, leader: number, table: ProcessTable) {
    this.#cgroup = cgroup;
    this.#walked = walkedTree(addon, leader, { more: () => this.#others(), table });
  }

  signal(signal: number): void {
    this.#cgroup.thaw();
    this.#walked.signal(signal);
  }

  emptyWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, () => {
      const populated = this.#cgroup.populated();
      return populated !== true && (this.#walked.empty() ?? populated === false);
    });
  }

  killWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, () => {
      const killed = !this.#holdsAgent() && this.#cgroup.kill();
      const populated = this.#cgroup.populated();
      if (killed && populated === true) return false;
      return this.#walked.killOnce() && (populated !== true || this.#holdsAgent());
    });
  }

  oomKilled(): boolean {
    return this.#cgroup.oomKilled();
  }

  /** Records that the leader was reaped. */
  release(): void {
    this.#walked.release();
    this.#cgroup.release();
  }

  /** Whether a root command moved the agent or its launcher into the cgroup, which must then not be killed as a whole. */
  #holdsAgent(): boolean {
    const members = this.#cgroup.members();
    return members.has(process.pid) || members.has(process.ppid);
  }

  #others(): ReadonlySet<number> {
    const members = new Set(this.#cgroup.members());
    members.delete(process.pid);
    members.delete(process.ppid);
    return members;
  }
}
