import type { ProcessSet } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { eventually, type TimeOf } from "../eventually.ts";
import { CgroupFolder } from "./cgroup-folder.ts";
import { type TreeSources, walkedTree, type WalkedProcesses } from "./walked-processes.ts";

/** Most cgroups below a command's own that are searched for members. */
const NESTED_LIMIT = 256;

/** The cgroup of one command: everything that it starts stays in it. A root command may do anything to its own cgroup. */
export class Cgroup extends CgroupFolder {
  readonly #giveBack: () => void;

  constructor(addon: Addon, fd: number, giveBack: () => void) {
    super(addon, fd);
    this.#giveBack = giveBack;
  }

  /** Sends SIGKILL to all processes in it and below it at once, also to those being forked. False: not possible. */
  kill(): boolean {
    return this.write("cgroup.kill", "1") === undefined;
  }

  /** Whether a process in it or below it is alive. Undefined: unknown. */
  populated(): boolean | undefined {
    const populated = this.value("cgroup.events", "populated");
    return populated === undefined ? undefined : populated === 1;
  }

  /** Whether all of these processes are in it, not below it. */
  holds(pids: readonly number[]): boolean {
    const members = this.read("cgroup.procs")?.split("\n") ?? [];
    return pids.every((pid) => members.includes(String(pid)));
  }

  /** Releases it: it is removed as soon as nothing lives in it. */
  release(): void {
    this.close();
    this.#giveBack();
  }
}

/**
 * A tree in a cgroup of its own, which processes do not leave by double forks or new sessions. But a privileged process
 * can move to another cgroup, and change or remove its own. So processes that a walk of /proc finds count too, and the
 * walk answers what the cgroup cannot.
 */
export class ContainedTree implements ProcessSet {
  readonly #cgroup: Cgroup;
  readonly #walked: WalkedProcesses;
  readonly #sessionClock: TimeOf | undefined;

  constructor(addon: Addon, cgroup: Cgroup, leader: number, sources: Omit<TreeSources, "more">) {
    this.#cgroup = cgroup;
    this.#sessionClock = sources.sessionClock;
    this.#walked = walkedTree(addon, leader, { ...sources, more: () => this.#others() });
  }

  signal(signal: number): Promise<void> {
    // Frozen processes would not act on it.
    this.#cgroup.write("cgroup.freeze", "0");
    return this.#walked.signal(signal);
  }

  emptyWithin(limitMs: number): Promise<boolean> {
    const isEmpty = async (): Promise<boolean> => {
      const populated = this.#cgroup.populated();
      return populated !== true && ((await this.#walked.empty()) ?? populated === false);
    };
    return eventually(limitMs, isEmpty, { time: this.#sessionClock });
  }

  killWithin(limitMs: number): Promise<boolean> {
    return eventually(limitMs, async () => {
      const killed = !this.#holdsAgent() && this.#cgroup.kill();
      const populated = this.#cgroup.populated();
      if (killed && populated === true) return false;
      return (await this.#walked.killOnce()) && (populated !== true || this.#holdsAgent());
    });
  }

  /** Records that the leader was reaped. */
  release(): void {
    this.#walked.release();
    this.#cgroup.release();
  }

  /** Whether a root command moved the agent or its launcher into the cgroup, which must then not be killed whole. */
  #holdsAgent(): boolean {
    const members = this.#cgroup.members(NESTED_LIMIT);
    return members.has(process.pid) || members.has(process.ppid);
  }

  #others(): ReadonlySet<number> {
    const members = this.#cgroup.members(NESTED_LIMIT);
    members.delete(process.pid);
    members.delete(process.ppid);
    return members;
  }
}
