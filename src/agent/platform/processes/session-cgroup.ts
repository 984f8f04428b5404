import { errnoOf } from "../../../shared/errors.ts";
import { type FreezeProblem, type PendingProcess, type SessionGroup, yieldToEventLoop } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { eventually } from "../eventually.ts";
import { namesIn, readProc } from "../proc.ts";
import type { CgroupDirectory } from "./cgroup-directory.ts";
import { Descendants, type DescendantScan } from "./descendants.ts";
import { cgroupOf } from "./own-cgroup.ts";

/** Largest number of cgroups that are searched for members. */
const NESTED_LIMIT = 16_384;
/** Largest number of scans for processes outside of the session's cgroup: while some of them run, they may start others. */
const ROUNDS = 8;
/** Largest number of processes that a message names. */
const NAMED_LIMIT = 8;
/** The state is polled in every tick of the event loop for this long, and then every millisecond. */
const SPIN_MS = 3;
const FAST_POLL_FOR_MS = 200;
const LONGEST_PAUSE_MS = 20;
const INIT = 1;
/** Kernel functions in which a stopped task sleeps (wchan of proc(5)). */
const STOPPED_IN: ReadonlySet<string> = new Set([
  "do_freezer_trap",
  "cgroup_leave_frozen",
  "do_signal_stop",
  "ptrace_stop",
  "get_signal",
  "wait_for_vfork_done",
]);

export interface SessionCgroupParts {
  readonly addon: Addon;
  /** The session's cgroup, below the agent's own. */
  readonly directory: CgroupDirectory;
  /**
   * The launcher, which adopts all orphans of the session. Undefined: there is none, so orphans are found only in the
   * cgroup.
   */
  readonly launcher: number | undefined;
}

/** A frozen cgroup outside of the session's own that contains only processes of the session. */
interface ExternalCgroup {
  readonly path: string;
  readonly directory: CgroupDirectory;
  /** The guest had frozen it before, so it must stay frozen. */
  readonly frozenByGuest: boolean;
}

/** Errnos of a removed cgroup, which has no processes. */
const REMOVED: ReadonlySet<string | undefined> = new Set(["ENODEV", "ENOENT"]);

/**
 * The session's cgroup. A privileged process can leave it, as dockerd does for its containers. Such processes are found
 * as descendants of the launcher, and are frozen in their own cgroups if these contain only processes of the session.
 */
export class SessionCgroup implements SessionGroup {
  readonly #descendants: Descendants;
  readonly #directory: CgroupDirectory;
  readonly #launcher: number | undefined;
  /** Undefined if /proc does not show it. Computed at the start, since the agent itself may be moved later. */
  readonly #path: string | undefined;
  /** Relative path from the session's directory to the root of the hierarchy. */
  readonly #pathToRoot: string;
  #external: ExternalCgroup[] = [];

  constructor({ addon, directory, launcher }: SessionCgroupParts) {
    const parent = cgroupOf("self")?.split("/").filter(Boolean);
    this.#descendants = new Descendants(addon, launcher ?? process.pid);
    this.#directory = directory;
    this.#launcher = launcher;
    this.#path = parent && ["", ...parent, directory.name, ""].join("/");
    this.#pathToRoot = "../".repeat((parent?.length ?? 0) + 1);
  }

  freeze(): FreezeProblem | undefined {
    const guarded = this.#guardedInside();
    if (guarded.length > 0) return `foreign_inside:${named(guarded)}`;
    const errno = this.#directory.write("cgroup.freeze", "1");
    if (errno !== undefined) return `freeze_write:${errno}`;
    // Only now, while the kernel stops them: what still runs is outside of the cgroup.
    const problem = this.#freezeStragglers();
    if (problem !== undefined) this.thaw();
    return problem;
  }

  recheck(): FreezeProblem | undefined {
    const frozen = this.#external.length;
    const problem = this.#freezeStragglers();
    if (problem !== undefined || this.#external.length === frozen) return problem;
    const late = membersOf(this.#external.slice(frozen).map(({ directory }) => directory));
    return `processes_outside:${named([...late])}`;
  }

  async stopped(limitMs: number): Promise<readonly PendingProcess[] | undefined> {
    if (await eventually(limitMs, () => this.#allStopped(), { pauseMs: pauseAfter })) return undefined;
    const pending: PendingProcess[] = [];
    for (const pid of this.#members()) {
      const found = pendingProcess(pid);
      if (found !== undefined) pending.push(found);
      // Thousands of processes take long, so let other calls run in between.
      await yieldToEventLoop();
    }
    return this.#allStopped() ? undefined : pending;
  }

  size(): number {
    return this.#members().size;
  }

  thaw(): boolean {
    const errno = this.#directory.write("cgroup.freeze", "0");
    if (errno !== undefined && !REMOVED.has(errno)) return false;
    this.#external = this.#external.filter(({ directory, frozenByGuest: byGuest }) => {
      const refused = byGuest ? undefined : directory.write("cgroup.freeze", "0");
      if (refused !== undefined && !REMOVED.has(refused)) return true;
      directory.close();
      return false;
    });
    return this.#external.length === 0;
  }

  kill(): boolean {
    // Nothing can join or leave meanwhile: a frozen process neither forks nor moves.
    return this.#directories().every((directory) => {
      const errno = directory.write("cgroup.kill", "1");
      // The kernel cannot kill a threaded cgroup as a whole (EOPNOTSUPP). A root workload can make its own one
      // threaded.
      return errno === undefined || REMOVED.has(errno) || killEach(directory.members(NESTED_LIMIT));
    });
  }

  #allStopped(): boolean {
    return this.#directories().every(
      (directory) =>
        directory.value("cgroup.events", "frozen") === 1 ||
        (directory !== this.#directory && directory.value("cgroup.events", "populated") !== 1),
    );
  }

  #members(): Set<number> {
    return membersOf(this.#directories());
  }

  #directories(): CgroupDirectory[] {
    return [this.#directory, ...this.#external.map(({ directory }) => directory)];
  }

  /** Processes in the cgroup that must never be frozen, not even for a moment. */
  #guardedInside(): number[] {
    const guarded = [process.pid, process.ppid, INIT];
    const paths = guarded.map(cgroupOf);
    const session = this.#path;
    if (session === undefined || paths.includes(undefined)) {
      const members = this.#members();
      return guarded.filter((pid) => members.has(pid));
    }
    return guarded.filter((_, index) => `${paths[index]}/`.startsWith(session));
  }

  /**
   * Freezes the session's processes outside of its cgroup, and checks that the cgroup has no foreign processes. Returns
   * undefined on success: a scan found no running process of the session, and none that may have left an unlisted
   * child.
   */
  #freezeStragglers(): FreezeProblem | undefined {
    let ended: ReadonlySet<number> = new Set();
    let foreign: number[] = [];
    let unfreezable: number[] = [];
    let running: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const found = this.#descendants.scan();
      if (found === undefined) return undefined;
      // Scan first, then read the members: a process that starts in between is missing from the scan, or is a member too.
      const members = this.#members();
      const [foreignBefore, unfreezableBefore, endedBefore] = [foreign, unfreezable, ended];
      foreign = this.#launcher === undefined ? [] : [...members].filter((pid) => found.others.has(pid));
      const foreignTwice = foreign.filter((pid) => foreignBefore.includes(pid));
      if (foreignTwice.length > 0) return `foreign_inside:${named(foreignTwice)}`;
      const outside = [...found.descendants].filter((pid) => !members.has(pid));
      const living = outside.filter((pid) => this.#descendants.isAlive(pid));
      ended = new Set([...found.ended, ...outside.filter((pid) => !living.includes(pid))]);
      const justEnded = [...ended].filter((pid) => !endedBefore.has(pid));
      running = [...living, ...justEnded];
      if (running.length === 0 && foreign.length === 0) return undefined;
      unfreezable = living.filter((pid) => !this.#freezeCgroupOf(pid, found));
      const unfreezableTwice = unfreezable.filter((pid) => unfreezableBefore.includes(pid));
      if (unfreezableTwice.length > 0) return `processes_outside:${named(unfreezableTwice)}`;
    }
    return `processes_outside:${named(running)}`;
  }

  /** Returns false if the cgroup of the process cannot be frozen without freezing others. */
  #freezeCgroupOf(pid: number, { others }: DescendantScan): boolean {
    const path = cgroupOf(pid);
    if (path === undefined || path === "/" || path.includes("..")) return false;
    if (this.#external.some((of) => of.path === path)) return true;
    // By its path from the root of the hierarchy.
    const directory = this.#directory.open(`${this.#pathToRoot}${path.slice(1)}`);
    if (directory === undefined) return false;
    const members = membersOf([directory]);
    const isOwn = members.has(pid) && ![...members].some((member) => others.has(member));
    const byGuest = directory.read("cgroup.freeze")?.trim() === "1";
    if (isOwn && (byGuest || directory.write("cgroup.freeze", "1") === undefined)) {
      this.#external.push({ path, directory, frozenByGuest: byGuest });
      return true;
    }
    directory.close();
    return false;
  }
}

/** Sends SIGKILL to each process. Returns false if one may not be signalled. */
function killEach(pids: ReadonlySet<number>): boolean {
  return [...pids].every((pid) => {
    try {
      return process.kill(pid, "SIGKILL");
    } catch (error) {
      return errnoOf(error) === "ESRCH";
    }
  });
}

function membersOf(directories: readonly CgroupDirectory[]): Set<number> {
  return directories.reduce((found, directory) => found.union(directory.members(NESTED_LIMIT)), new Set<number>());
}

function pauseAfter(spentMs: number): number {
  if (spentMs < SPIN_MS) return 0;
  return spentMs < FAST_POLL_FOR_MS ? 1 : LONGEST_PAUSE_MS;
}

function named(pids: readonly number[]): string {
  return pids
    .slice(0, NAMED_LIMIT)
    .map((pid) => `${pid}(${nameOf(pid)})`)
    .join(",");
}

function nameOf(pid: number): string {
  return readProc(`/proc/${pid}/comm`).trimEnd();
}

/** Returns the process if one of its threads sleeps in the kernel in a function other than the freezer's. */
function pendingProcess(pid: number): PendingProcess | undefined {
  const waitChannel = namesIn(`/proc/${pid}/task`)
    .map((thread) => pendingIn(`/proc/${pid}/task/${thread}`))
    .find((channel) => channel !== undefined);
  return waitChannel === undefined ? undefined : { pid, name: nameOf(pid), waitChannel };
}

/**
 * The kernel function in which a task that has not stopped sleeps; empty: the kernel does not tell. Undefined: the task
 * has stopped or ended.
 */
function pendingIn(task: string): string | undefined {
  const [, state = "X"] = /^\d+ \(.*\) (\S)/s.exec(readProc(`${task}/stat`)) ?? [];
  if ("XZTt".includes(state)) return undefined;
  const channel = readProc(`${task}/wchan`);
  if (STOPPED_IN.has(channel)) return undefined;
  if (channel !== "" && channel !== "0") return channel;
  // Without a wait channel, a task in interruptible sleep is held by the freezer.
  return state === "S" ? undefined : "";
}
