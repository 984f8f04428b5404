import { errnoOf } from "../../../shared/errors.ts";
import { type FreezeProblem, type PendingProcess, type SessionGroup, yieldToEventLoop } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { eventually } from "../eventually.ts";
import { namesIn, readProc } from "../proc.ts";
import type { CgroupDirectory } from "./cgroup-directory.ts";
import { Descendants, type DescendantScan } from "./descendants.ts";
import { cgroupOf } from "./own-cgroup.ts";

/** Largest number of nested cgroups that are searched for processes of the session. */
const NESTED_LIMIT = 16_384;
/**
 * Largest number of scans for processes outside of the session's cgroup. Further scans may be necessary because running
 * processes start new ones.
 */
const ROUNDS = 8;
/** Largest number of processes that the reason for a failed freeze lists. */
const NAMED_LIMIT = 8;
/**
 * The state of the cgroups is polled in every tick of the event loop for SPIN_MS, then every millisecond until
 * FAST_POLL_FOR_MS, and then every LONGEST_PAUSE_MS.
 */
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
  readonly directory: CgroupDirectory;
  /**
   * The launcher, which adopts all orphans of the session. If undefined, orphans that have left the session's cgroup
   * cannot be found.
   */
  readonly launcher: number | undefined;
}

/**
 * A cgroup outside of the session's cgroup that was frozen together with the session, because it contains only
 * processes of the session, such as a container of dockerd.
 */
interface ExternalCgroup {
  readonly path: string;
  readonly directory: CgroupDirectory;
  /** Whether the cgroup was already frozen before the agent froze it. In this case `thaw` must leave it frozen. */
  readonly frozenByGuest: boolean;
}

/** Errnos which mean that a cgroup was removed. A removed cgroup has no processes. */
const REMOVED: ReadonlySet<string | undefined> = new Set(["ENODEV", "ENOENT"]);

/**
 * The session's cgroup. A privileged process can leave it, as dockerd does for its containers. Such a process is found
 * as a descendant of the launcher. The cgroup to which it has moved is also frozen, if that cgroup contains only
 * processes of the session.
 */
export class SessionCgroup implements SessionGroup {
  readonly #descendants: Descendants;
  readonly #directory: CgroupDirectory;
  readonly #launcher: number | undefined;
  /**
   * Path of the session's cgroup; undefined if /proc does not show it. It is read at the start, because the agent may
   * be moved to another cgroup later.
   */
  readonly #path: string | undefined;
  /**
   * Relative path from the session's cgroup directory to the root of the cgroup hierarchy, such as "../../". It is the
   * prefix of the path to any other cgroup.
   */
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
    // Processes of the session that still run are now outside of the cgroup.
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
      // This loop takes long if there are thousands of processes, so other calls get their turn in between.
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
    // The cgroups are killed one after another. No process can move from one to another meanwhile, because frozen
    // processes neither fork nor move.
    return this.#directories().every((directory) => {
      const errno = directory.write("cgroup.kill", "1");
      // The kernel cannot kill a threaded cgroup as a whole (EOPNOTSUPP), and a root workload can make its own cgroup
      // threaded. In this case its processes are killed one by one.
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

  /** Processes in the session's cgroup that must never be frozen: the agent, its parent (the launcher) and PID 1. */
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
   * Freezes the processes of the session that are outside of its cgroup, and checks that the cgroup contains no foreign
   * processes. Returns undefined on success, or if there is no usable /proc. Repeats the scan until it finds no running
   * process and none that has just ended, because a process that ends may leave a child that the scan has missed.
   */
  #freezeStragglers(): FreezeProblem | undefined {
    let ended: ReadonlySet<number> = new Set();
    let foreign: number[] = [];
    let unfreezable: number[] = [];
    let running: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const found = this.#descendants.scan();
      if (found === undefined) return undefined;
      // The members must be read after the scan. Otherwise a process that enters the cgroup in between would count as
      // outside of it.
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

  /** Freezes the cgroup of a process. Returns false if this would also freeze processes outside of the session. */
  #freezeCgroupOf(pid: number, { others }: DescendantScan): boolean {
    const path = cgroupOf(pid);
    if (path === undefined || path === "/" || path.includes("..")) return false;
    if (this.#external.some((of) => of.path === path)) return true;
    // The path is relative to the root of the hierarchy.
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

/** Sends SIGKILL to each process. Returns false if the agent may not signal one of them. */
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

/** Describes the process if the freezer has not stopped all of its threads. Otherwise returns undefined. */
function pendingProcess(pid: number): PendingProcess | undefined {
  const waitChannel = namesIn(`/proc/${pid}/task`)
    .map((thread) => pendingIn(`/proc/${pid}/task/${thread}`))
    .find((channel) => channel !== undefined);
  return waitChannel === undefined ? undefined : { pid, name: nameOf(pid), waitChannel };
}

/**
 * If a task has not been stopped by the freezer, returns the kernel function in which it sleeps, or an empty string if
 * the kernel does not show it. Returns undefined if the task has stopped or ended.
 */
function pendingIn(task: string): string | undefined {
  const [, state = "X"] = /^\d+ \(.*\) (\S)/s.exec(readProc(`${task}/stat`)) ?? [];
  if ("XZTt".includes(state)) return undefined;
  const channel = readProc(`${task}/wchan`);
  if (STOPPED_IN.has(channel)) return undefined;
  if (channel !== "" && channel !== "0") return channel;
  // The kernel does not show the function in which the task sleeps, so only the state of the task is known. A task in
  // interruptible sleep is then assumed to be stopped by the freezer.
  return state === "S" ? undefined : "";
}
