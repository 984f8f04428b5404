import type { ProcessSet } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { eventually, type TimeOf } from "../eventually.ts";
import { CgroupDirectory } from "./cgroup-directory.ts";
import { type TreeSources, walkedTree, type WalkedProcesses } from "./walked-processes.ts";

/** Largest number of cgroups below a command's own that are searched for members. */
export const NESTED_LIMIT = 256;

/** The cgroup of one command. All its descendants stay in it, unless a root command changes its own cgroup. */
export class Cgroup extends CgroupDirectory {
  readonly #onRelease: () => void;

  constructor(addon: Addon, { fd, name }: Pick<CgroupDirectory, "fd" | "name">, onRelease: () => void) {
    super(addon, fd, name);
    this.#onRelease = onRelease;
  }

  /**
   * Sends SIGKILL to all processes in it and below at once, including those being forked. Returns false if that is
   * impossible.
   */
  kill(): boolean {
    return this.write("cgroup.kill", "1") === undefined;
  }

  /** Whether it, or a cgroup below, has living processes; undefined: unknown. */
  populated(): boolean | undefined {
    const populated = this.value("cgroup.events", "populated");
    return populated === undefined ? undefined : populated === 1;
  }

  /** Whether all these processes are directly in this cgroup. */
  holds(pids: readonly number[]): boolean {
    const members = this.read("cgroup.procs")?.split("\n") ?? [];
    return pids.every((pid) => members.includes(String(pid)));
  }

  /** Whether a root command moved the agent or its launcher into it. Then cgroup.kill would kill them, too. */
  holdsAgent(): boolean {
    const members = this.members(NESTED_LIMIT);
    return members.has(process.pid) || members.has(process.ppid);
  }

  /** Gives the cgroup up. It is removed as soon as it is empty. */
  release(): void {
    this.close();
    this.#onRelease();
  }
}

/**
 * A process tree in a cgroup of its own. Double forks and new sessions do not escape from a cgroup, but a privileged
 * process can move to another one, or change or remove its own. So the tree also contains processes found by walking
 * /proc, and the walk is used where the cgroup gives no answer.
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
    // Frozen processes could not handle the signal.
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
