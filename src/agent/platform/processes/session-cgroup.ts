import { errnoOf } from "../../../shared/errors.ts";
import { type FreezeProblem, type PendingProcess, type SessionGroup, yieldToEventLoop } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { eventually } from "../eventually.ts";
import { namesIn, readProc } from "../proc.ts";
import type { CgroupFolder } from "./cgroup-folder.ts";
import { Kin, type KinFound } from "./kin.ts";
import { cgroupOf } from "./own-cgroup.ts";

/** Most cgroups that are searched for members. */
const NESTED_LIMIT = 16_384;
/**
 * Most scans of the processes inside and outside of the session's cgroup: while some outside run, they may start
 * others.
 */
const ROUNDS = 8;
/** Most processes that a problem or an answer names. */
const NAMED_LIMIT = 8;
/** Time in which the state is polled in every tick of the event loop, and then every millisecond. */
const SPIN_MS = 3;
const FAST_POLL_FOR_MS = 200;
const LONGEST_PAUSE_MS = 20;
const INIT = 1;
/** Where the kernel holds a task that has stopped (wchan of proc(5)). */
const STOPPED_IN: ReadonlySet<string> = new Set([
  "do_freezer_trap",
  "cgroup_leave_frozen",
  "do_signal_stop",
  "ptrace_stop",
  "get_signal",
  "wait_for_vfork_done",
]);

/** What a SessionCgroup is made of. */
export interface SessionCgroupParts {
  readonly addon: Addon;
  /** The session's cgroup, below the agent's own. */
  readonly folder: CgroupFolder;
  /**
   * The launcher, which adopts all orphans of the session. Undefined: there is none, and orphans are found only in the
   * cgroup.
   */
  readonly launcher: number | undefined;
}

/** A frozen cgroup outside of the session's in which nobody but the session lives. */
interface Outer {
  readonly path: string;
  readonly folder: CgroupFolder;
  /** The guest has frozen it by itself: it stays frozen. */
  readonly byGuest: boolean;
}

/** Errnos of a cgroup that has been removed: nothing lives in it. */
const REMOVED: ReadonlySet<string | undefined> = new Set(["ENODEV", "ENOENT"]);

/**
 * The session's cgroup. A privileged process can leave it, as dockerd does for its containers. Such processes are found
 * as descendants of the launcher, and frozen in the cgroups that they are in, if nobody else is there.
 */
export class SessionCgroup implements SessionGroup {
  readonly #kin: Kin;
  readonly #folder: CgroupFolder;
  readonly #launcher: number | undefined;
  /** Undefined: /proc does not tell. The agent itself may be moved elsewhere later on. */
  readonly #path: string | undefined;
  /** The way from the folder to the root of the hierarchy. */
  readonly #toRoot: string;
  #outer: Outer[] = [];

  constructor({ addon, folder, launcher }: SessionCgroupParts) {
    const parent = cgroupOf("self")?.split("/").filter(Boolean);
    this.#kin = new Kin(addon, launcher ?? process.pid);
    this.#folder = folder;
    this.#launcher = launcher;
    this.#path = parent && ["", ...parent, folder.name, ""].join("/");
    this.#toRoot = "../".repeat((parent?.length ?? 0) + 1);
  }

  freeze(): FreezeProblem | undefined {
    const guarded = this.#guardedInside();
    if (guarded.length > 0) return `foreign_inside:${named(guarded)}`;
    const errno = this.#folder.write("cgroup.freeze", "1");
    if (errno !== undefined) return `freeze_write:${errno}`;
    // Only now, when the kernel stops them: all that still runs is outside of the cgroup.
    const problem = this.#settle();
    if (problem !== undefined) this.thaw();
    return problem;
  }

  recheck(): FreezeProblem | undefined {
    const frozen = this.#outer.length;
    const problem = this.#settle();
    if (problem !== undefined || this.#outer.length === frozen) return problem;
    const late = membersOf(this.#outer.slice(frozen).map(({ folder }) => folder));
    return `processes_outside:${named([...late])}`;
  }

  async stopped(limitMs: number): Promise<readonly PendingProcess[] | undefined> {
    if (await eventually(limitMs, () => this.#allStopped(), { pauseMs: pauseAfter })) return undefined;
    const pending: PendingProcess[] = [];
    for (const pid of this.#members()) {
      const found = pendingProcess(pid);
      if (found !== undefined) pending.push(found);
      // Thousands take long: let other calls get their answers meanwhile.
      await yieldToEventLoop();
    }
    return this.#allStopped() ? undefined : pending;
  }

  size(): number {
    return this.#members().size;
  }

  thaw(): boolean {
    const errno = this.#folder.write("cgroup.freeze", "0");
    if (errno !== undefined && !REMOVED.has(errno)) return false;
    this.#outer = this.#outer.filter(({ folder, byGuest }) => {
      const refused = byGuest ? undefined : folder.write("cgroup.freeze", "0");
      if (refused !== undefined && !REMOVED.has(refused)) return true;
      folder.close();
      return false;
    });
    return this.#outer.length === 0;
  }

  kill(): boolean {
    // Nothing can leave or join meanwhile: a frozen process neither forks nor moves.
    return this.#folders().every((folder) => {
      const errno = folder.write("cgroup.kill", "1");
      // The kernel kills no threaded cgroup as a whole (EOPNOTSUPP), which a root workload can make of its own.
      return errno === undefined || REMOVED.has(errno) || killEach(folder.members(NESTED_LIMIT));
    });
  }

  #allStopped(): boolean {
    return this.#folders().every(
      (folder) =>
        folder.value("cgroup.events", "frozen") === 1 ||
        (folder !== this.#folder && folder.value("cgroup.events", "populated") !== 1),
    );
  }

  #members(): Set<number> {
    return membersOf(this.#folders());
  }

  #folders(): CgroupFolder[] {
    return [this.#folder, ...this.#outer.map(({ folder }) => folder)];
  }

  /** Members that must never be frozen, not for a moment. */
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
   * Looks for frozen processes of others, and freezes the session's processes outside of its cgroup. Undefined: all is
   * well, as a scan found nobody who runs, and nobody who may have left a child that it did not find.
   */
  #settle(): FreezeProblem | undefined {
    let ended: ReadonlySet<number> = new Set();
    let foreign: number[] = [];
    let unfreezable: number[] = [];
    let running: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const found = this.#kin.scan();
      if (found === undefined) return undefined;
      // In this order a process that is born meanwhile is no kin, or a member too.
      const members = this.#members();
      const [foreignBefore, unfreezableBefore, endedBefore] = [foreign, unfreezable, ended];
      foreign = this.#launcher === undefined ? [] : [...members].filter((pid) => found.others.has(pid));
      const foreignTwice = foreign.filter((pid) => foreignBefore.includes(pid));
      if (foreignTwice.length > 0) return `foreign_inside:${named(foreignTwice)}`;
      const outside = [...found.kin].filter((pid) => !members.has(pid));
      const living = outside.filter((pid) => this.#kin.isAlive(pid));
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

  /** False: it cannot be frozen alone. */
  #freezeCgroupOf(pid: number, { others }: KinFound): boolean {
    const path = cgroupOf(pid);
    if (path === undefined || path === "/" || path.includes("..")) return false;
    if (this.#outer.some((of) => of.path === path)) return true;
    // By its path from the root of the hierarchy.
    const folder = this.#folder.open(`${this.#toRoot}${path.slice(1)}`);
    if (folder === undefined) return false;
    const members = membersOf([folder]);
    const isOwn = members.has(pid) && ![...members].some((member) => others.has(member));
    const byGuest = folder.read("cgroup.freeze")?.trim() === "1";
    if (isOwn && (byGuest || folder.write("cgroup.freeze", "1") === undefined)) {
      this.#outer.push({ path, folder, byGuest });
      return true;
    }
    folder.close();
    return false;
  }
}

/** Sends SIGKILL to each of these processes. False: one may not be signalled. */
function killEach(pids: ReadonlySet<number>): boolean {
  return [...pids].every((pid) => {
    try {
      return process.kill(pid, "SIGKILL");
    } catch (error) {
      return errnoOf(error) === "ESRCH";
    }
  });
}

function membersOf(folders: readonly CgroupFolder[]): Set<number> {
  return folders.reduce((found, folder) => found.union(folder.members(NESTED_LIMIT)), new Set<number>());
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

/** The process if one of its threads waits in the kernel elsewhere than where the freezer holds tasks. */
function pendingProcess(pid: number): PendingProcess | undefined {
  const waitChannel = namesIn(`/proc/${pid}/task`)
    .map((thread) => pendingIn(`/proc/${pid}/task/${thread}`))
    .find((channel) => channel !== undefined);
  return waitChannel === undefined ? undefined : { pid, name: nameOf(pid), waitChannel };
}

/** Where a task waits that has not stopped; empty: the kernel does not say. Undefined: it has stopped, or ended. */
function pendingIn(task: string): string | undefined {
  const [, state = "X"] = /^\d+ \(.*\) (\S)/s.exec(readProc(`${task}/stat`)) ?? [];
  if ("XZTt".includes(state)) return undefined;
  const channel = readProc(`${task}/wchan`);
  if (STOPPED_IN.has(channel)) return undefined;
  if (channel !== "" && channel !== "0") return channel;
  // Without a channel, a task in an interruptible sleep is one that the freezer holds.
  return state === "S" ? undefined : "";
}
