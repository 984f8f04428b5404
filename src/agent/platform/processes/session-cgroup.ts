import { closeSync, readdirSync, readFileSync } from "node:fs";
import type { FreezeProblem, PendingProcess, SessionGroup } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { addMembers, type CgroupFiles, valueOf } from "./cgroup.ts";
import { cgroupOf, FOLDER, readAt, writeAt } from "./cgroup-base.ts";
import { ProcessTable } from "./process-table.ts";

/** Most cgroups that are searched for members. */
const NESTED_LIMIT = 16_384;
/** Most rounds of freezing processes outside of the session's cgroup: while some still run, they may start others. */
const OUTSIDE_ROUNDS = 8;
/** Looks at a process that seems to be another's, before that counts. */
const LOOKS_AT_STRANGERS = 3;
/** Most processes that a problem or an answer names. */
const NAMED_LIMIT = 8;
/** Time in which the state is looked at in every turn of the event loop, and every millisecond. */
const SPIN_MS = 3;
const EVERY_MS_MS = 200;
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
  /** The open folder of the session's cgroup. */
  readonly folder: number;
  /** The launcher, which adopts all orphans of the session. Undefined: there is none, and orphans are found only in the cgroup. */
  readonly launcher: number | undefined;
}

/** A frozen cgroup outside of the session's in which nobody but the session lives. */
interface Outer {
  readonly path: string;
  readonly folder: number;
  /** The guest has frozen it by itself, and so it stays. */
  readonly byGuest: boolean;
}

/** Errnos of a cgroup that has been removed: nothing lives in it. */
const REMOVED: ReadonlySet<string | undefined> = new Set(["ENODEV", "ENOENT"]);

/**
 * The session's cgroup. A privileged process can leave it, as dockerd does for its containers: such processes are found as
 * descendants of the launcher, and frozen in the cgroups that they are in, if nobody else is there.
 */
export class SessionCgroup implements SessionGroup {
  readonly #addon: CgroupFiles;
  readonly #table: ProcessTable;
  readonly #folder: number;
  readonly #launcher: number | undefined;
  /** The way from the folder to the root of the hierarchy. The agent itself may be moved elsewhere later on. */
  readonly #toRoot: string;
  #outer: Outer[] = [];

  constructor({ addon, folder, launcher }: SessionCgroupParts) {
    this.#addon = addon;
    this.#table = new ProcessTable(addon);
    this.#folder = folder;
    this.#launcher = launcher;
    this.#toRoot = "../".repeat((cgroupOf("self") ?? "/").split("/").filter(Boolean).length + 1);
  }

  freeze(): FreezeProblem | undefined {
    const foreign = this.#foreign();
    if (foreign.length > 0) return `foreign_inside:${named(foreign)}`;
    const errno = writeAt(this.#addon, this.#folder, "cgroup.freeze", "1");
    if (errno !== undefined) return `freeze_write:${errno}`;
    let outside: number[] = [];
    for (let round = 0; round < OUTSIDE_ROUNDS; round++) {
      outside = this.#outside();
      if (outside.length === 0) return undefined;
      const own = this.#descendants() ?? new Set();
      const stuck = outside.filter((pid) => !this.#freezeCgroupOf(pid, own));
      if (stuck.length === 0) continue;
      // It may have ended meanwhile, or moved.
      outside = this.#outside().filter((pid) => stuck.includes(pid));
      if (outside.length > 0) break;
    }
    this.thaw();
    return `processes_outside:${named(outside)}`;
  }

  async stopped(limitMs: number): Promise<readonly PendingProcess[] | undefined> {
    const beganMs = performance.now();
    for (;;) {
      if (this.#allStopped()) return undefined;
      const spentMs = performance.now() - beganMs;
      if (spentMs > limitMs) break;
      await pause(spentMs);
    }
    const pending = [...this.#members()].flatMap((pid) => pendingProcess(pid) ?? []);
    return this.#allStopped() ? undefined : pending;
  }

  size(): number {
    return this.#members().size;
  }

  thaw(): boolean {
    const errno = writeAt(this.#addon, this.#folder, "cgroup.freeze", "0");
    if (errno !== undefined && !REMOVED.has(errno)) return false;
    this.#outer = this.#outer.filter(({ folder, byGuest }) => {
      const refused = byGuest ? undefined : writeAt(this.#addon, folder, "cgroup.freeze", "0");
      if (refused !== undefined && !REMOVED.has(refused)) return true;
      closeSync(folder);
      return false;
    });
    return this.#outer.length === 0;
  }

  #allStopped(): boolean {
    return [this.#folder, ...this.#outer.map(({ folder }) => folder)].every((folder) => {
      const events = readAt(this.#addon, folder, "cgroup.events");
      return valueOf(events, "frozen") === 1 || (folder !== this.#folder && valueOf(events, "populated") !== 1);
    });
  }

  #members(): Set<number> {
    return this.#membersOf([this.#folder, ...this.#outer.map(({ folder }) => folder)]);
  }

  #membersOf(folders: readonly number[]): Set<number> {
    const found = new Set<number>();
    for (const folder of folders) addMembers(this.#addon, folder, found, { left: NESTED_LIMIT });
    return found;
  }

  /** Members that must never be frozen, or that are not the session's. */
  #foreign(): number[] {
    const members = this.#members();
    const protectedPids = [process.pid, process.ppid, INIT].filter((pid) => members.has(pid));
    if (protectedPids.length > 0 || this.#launcher === undefined) return protectedPids;
    const own = this.#descendants();
    return own === undefined ? [] : this.#strangers(own, () => this.#members());
  }

  /**
   * Members of a cgroup that are not the session's. No two readings show the same moment, and a process whose parent has just
   * ended may seem nobody's: a stranger is one in all of several looks.
   */
  #strangers(own: ReadonlySet<number>, look: () => ReadonlySet<number>): number[] {
    let strangers = [...look()].filter((pid) => !own.has(pid));
    for (let more = LOOKS_AT_STRANGERS; more > 0 && strangers.length > 0; more--) {
      const later = this.#descendants();
      // After the other: what is in it has lived all the time.
      const still = look();
      strangers = strangers.filter((pid) => still.has(pid) && later?.has(pid) !== true);
    }
    return strangers;
  }

  /** Processes of the session that are in none of the frozen cgroups. */
  #outside(): number[] {
    // In this order a process that is born meanwhile is in both.
    const own = this.#descendants() ?? new Set<number>();
    const members = this.#members();
    return [...own].filter((pid) => !members.has(pid));
  }

  /**
   * Living descendants of the launcher, or without one of the agent; those two are none of them. Undefined: there is no usable
   * /proc.
   */
  #descendants(): Set<number> | undefined {
    const rows = this.#table.look();
    if (typeof rows === "number" || !rows.some(({ pid }) => pid === process.pid)) return undefined;
    const children = Map.groupBy(rows, ({ parent }) => parent);
    const found = new Set<number>();
    const queue = [this.#launcher ?? process.pid];
    for (let parent = queue.pop(); parent !== undefined; parent = queue.pop()) {
      for (const { pid, alive } of children.get(parent) ?? []) {
        queue.push(pid);
        if (alive && pid !== process.pid) found.add(pid);
      }
    }
    return found;
  }

  /** False: it cannot be frozen alone. */
  #freezeCgroupOf(pid: number, own: ReadonlySet<number>): boolean {
    const path = cgroupOf(pid);
    if (path === undefined || path === "/" || path.includes("..")) return false;
    if (this.#outer.some((of) => of.path === path)) return true;
    const folder = this.#openCgroup(path);
    if (folder < 0) return false;
    const look = (): Set<number> => this.#membersOf([folder]);
    const isOwn = look().has(pid) && this.#strangers(own, look).length === 0;
    const byGuest = readAt(this.#addon, folder, "cgroup.freeze")?.trim() === "1";
    if (isOwn && (byGuest || writeAt(this.#addon, folder, "cgroup.freeze", "1") === undefined)) {
      this.#outer.push({ path, folder, byGuest });
      return true;
    }
    closeSync(folder);
    return false;
  }

  /** Opens a cgroup by its path from the root of the hierarchy. */
  #openCgroup(path: string): number {
    return this.#addon.openAt(this.#folder, `${this.#toRoot}${path.slice(1)}`, FOLDER);
  }
}

function pause(spentMs: number): Promise<void> {
  return new Promise((resolve) => {
    if (spentMs < SPIN_MS) setImmediate(resolve);
    else setTimeout(resolve, spentMs < EVERY_MS_MS ? 1 : LONGEST_PAUSE_MS);
  });
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
  const waitChannel = threadsOf(pid)
    .map(pendingIn)
    .find((channel) => channel !== undefined);
  return waitChannel === undefined ? undefined : { pid, name: nameOf(pid), waitChannel };
}

function threadsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`).map((thread) => `/proc/${pid}/task/${thread}`);
  } catch {
    return [];
  }
}

/** Where a task waits that has not stopped; empty: the kernel does not say. Undefined: it has stopped, or ended. */
function pendingIn(task: string): string | undefined {
  const [, state = "X"] = /^\d+ \(.*\) (\S)/s.exec(readProc(`${task}/stat`)) ?? [];
  if ("XZTt".includes(state)) return undefined;
  const channel = readProc(`${task}/wchan`);
  if (STOPPED_IN.has(channel)) return undefined;
  const isKnown = channel !== "" && channel !== "0";
  // Without a channel, a task in an interruptible sleep is one that the freezer holds.
  return isKnown ? channel : state === "S" ? undefined : "";
}

function readProc(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}
