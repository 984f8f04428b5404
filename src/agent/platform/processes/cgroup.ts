import { closeSync } from "node:fs";
import type { ProcessSet } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { FOLDER, readAt, writeAt } from "./cgroup-base.ts";
import { eventually, type TimeOf, type TreeSources, walkedTree, type WalkedProcesses } from "./walked-processes.ts";

/** Most cgroups below a command's own that are searched for members: a command can make any number. */
const NESTED_LIMIT = 256;
/** No descriptor: every call fails with EBADF. */
const NO_FOLDER = -1;

/** Value of a key in a file of `key value` lines; undefined when it is not there. */
export function valueOf(text: string | undefined, key: string): number | undefined {
  const value = new RegExp(`^${key} (\\d+)$`, "m").exec(text ?? "")?.[1];
  return value === undefined ? undefined : Number(value);
}

/**
 * The cgroup of one command (cgroups(7)): everything that it starts stays in it. A root command may do anything to its
 * own cgroup. The cgroup's files may then fail in several ways (ENOTSUP of a threaded one, ENODEV of a removed one).
 * Such a failure means "unknown" or "not done"; nothing throws.
 */
export class Cgroup {
  readonly #calls: Addon;
  readonly #giveBack: () => void;
  #folder: number;

  constructor(calls: Addon, folder: number, giveBack: () => void) {
    this.#calls = calls;
    this.#folder = folder;
    this.#giveBack = giveBack;
  }

  /** The open folder, for starting children in it. */
  get folder(): number {
    return this.#folder;
  }

  /** Sends SIGKILL to all processes in it and below it at once, also to those being forked. False: not possible. */
  kill(): boolean {
    return writeAt(this.#calls, this.#folder, "cgroup.kill", "1") === undefined;
  }

  /** Thaws frozen processes, which would not act on a signal. */
  thaw(): void {
    writeAt(this.#calls, this.#folder, "cgroup.freeze", "0");
  }

  /** Whether a process in it or below it is alive. Undefined: unknown. */
  populated(): boolean | undefined {
    const populated = valueOf(readAt(this.#calls, this.#folder, "cgroup.events"), "populated");
    return populated === undefined ? undefined : populated === 1;
  }

  /** Whether all of these processes are in it, not below it. */
  holds(pids: readonly number[]): boolean {
    const members = readAt(this.#calls, this.#folder, "cgroup.procs")?.split("\n") ?? [];
    return pids.every((pid) => members.includes(String(pid)));
  }

  /** Ids of the processes in it and below it, as far as they are known. */
  members(): Set<number> {
    const found = new Set<number>();
    addMembers(this.#calls, this.#folder, found, { left: NESTED_LIMIT });
    return found;
  }

  /** What has been used in it and below; of Addon.usedIn. */
  used(): Float64Array {
    return this.#calls.usedIn(this.#folder);
  }

  /**
   * Releases it: it is removed as soon as nothing lives in it. From then on nothing is known of it, and nothing done to
   * it: its descriptor's number may be that of the next command's cgroup.
   */
  release(): void {
    closeSync(this.#folder);
    this.#folder = NO_FOLDER;
    this.#giveBack();
  }
}

/** Adds the ids of the processes in a cgroup and in those below it, of which it searches at most `nested.left`. */
export function addMembers(calls: Addon, folder: number, found: Set<number>, nested: { left: number }): void {
  // A threaded cgroup lists only threads. The first thread of a process has the process's id.
  const listed = readAt(calls, folder, "cgroup.procs") ?? readAt(calls, folder, "cgroup.threads") ?? "";
  for (const pid of listed.split("\n").map(Number)) if (pid > 0) found.add(pid);
  const names = calls.foldersIn(folder);
  if (typeof names === "number") return;
  for (const name of names) {
    if (nested.left === 0) return;
    const below = calls.openAt(folder, name, FOLDER);
    if (below < 0) continue;
    nested.left--;
    addMembers(calls, below, found, nested);
    closeSync(below);
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
  readonly #life: TimeOf | undefined;

  constructor(addon: Addon, cgroup: Cgroup, leader: number, sources: Omit<TreeSources, "more">) {
    this.#cgroup = cgroup;
    this.#life = sources.life;
    this.#walked = walkedTree(addon, leader, { ...sources, more: () => this.#others() });
  }

  signal(signal: number): Promise<void> {
    this.#cgroup.thaw();
    return this.#walked.signal(signal);
  }

  emptyWithin(limitMs: number): Promise<boolean> {
    const isEmpty = async (): Promise<boolean> => {
      const populated = this.#cgroup.populated();
      return populated !== true && ((await this.#walked.empty()) ?? populated === false);
    };
    return eventually(limitMs, isEmpty, this.#life);
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
    const members = this.#cgroup.members();
    return members.has(process.pid) || members.has(process.ppid);
  }

  #others(): ReadonlySet<number> {
    const members = this.#cgroup.members();
    members.delete(process.pid);
    members.delete(process.ppid);
    return members;
  }
}
