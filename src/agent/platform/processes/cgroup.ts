import type { ProcessSet } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { eventually, type TimeOf } from "../eventually.ts";
import { CgroupDirectory } from "./cgroup-directory.ts";
import { type TreeSources, walkedTree, type WalkedProcesses } from "./walked-processes.ts";

/** A command may create cgroups below its own cgroup. At most this many of them are searched for processes. */
export const NESTED_LIMIT = 256;

/**
 * The cgroup of one command. All descendants of the command stay in this cgroup, unless a command that runs as root
 * moves a process to another cgroup.
 */
export class Cgroup extends CgroupDirectory {
  readonly #onRelease: () => void;

  constructor(addon: Addon, { fd, name }: Pick<CgroupDirectory, "fd" | "name">, onRelease: () => void) {
    super(addon, fd, name);
    this.#onRelease = onRelease;
  }

  /**
   * Sends SIGKILL to all processes in this cgroup and below, including processes that are being forked. Returns false
   * if the kernel refuses (cgroup.kill).
   */
  kill(): boolean {
    return this.write("cgroup.kill", "1") === undefined;
  }

  /** Whether this cgroup, or a cgroup below it, has living processes; undefined if unknown. */
  populated(): boolean | undefined {
    const populated = this.value("cgroup.events", "populated");
    return populated === undefined ? undefined : populated === 1;
  }

  /** Whether all these processes are directly in this cgroup. */
  holds(pids: readonly number[]): boolean {
    const members = this.read("cgroup.procs")?.split("\n") ?? [];
    return pids.every((pid) => members.includes(String(pid)));
  }

  /** Whether a root command has moved the agent or its launcher into this cgroup, where cgroup.kill would kill them. */
  holdsAgent(): boolean {
    const members = this.members(NESTED_LIMIT);
    return members.has(process.pid) || members.has(process.ppid);
  }

  /** Ends the use of this cgroup. It is removed as soon as it is empty. */
  release(): void {
    this.close();
    this.#onRelease();
  }
}

/**
 * The process tree of a command: the processes in its cgroup, and those that a search of /proc finds. The search is
 * needed because a privileged process may leave, change or remove the cgroup, and because the kernel may refuse an
 * operation on the cgroup.
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
    // A command may have frozen its own cgroup, and frozen processes do not handle signals.
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
      const killed = !this.#cgroup.holdsAgent() && this.#cgroup.kill();
      const populated = this.#cgroup.populated();
      if (killed && populated === true) return false;
      return (await this.#walked.killOnce()) && (populated !== true || this.#cgroup.holdsAgent());
    });
  }

  release(): void {
    this.#walked.release();
    this.#cgroup.release();
  }

  #others(): ReadonlySet<number> {
    const members = this.#cgroup.members(NESTED_LIMIT);
    members.delete(process.pid);
    members.delete(process.ppid);
    return members;
  }
}
