import { constants as system } from "node:os";
import { Cgroup } from "./cgroup.ts";
import type { Addon } from "../../native/index.ts";
import { type CgroupDirectory, DIRECTORY } from "./cgroup-directory.ts";
import { openOwnCgroup } from "./own-cgroup.ts";
import { SessionMemory } from "./session-memory.ts";

/** Largest number of names to try. A name may be taken by an agent with the same pid in another PID namespace. */
const NAME_ATTEMPTS = 16;
/**
 * Largest number of cgroups that a sweep tries again to remove, after an earlier sweep found them busy. An attempt
 * takes 10 us.
 */
const SWEEP_AT_ONCE = 4;
/** Names of session cgroups: the agent's process id, plus a number if the name was taken. */
const OF_A_SESSION = /^svc-guest-\d+-session(-\d+)?$/;
/** Largest number of cgroups below a session's cgroup that are removed at once; a command may create any number. */
const REMOVED_LIMIT = 4_096;

/**
 * Manages the session's cgroup, and in it a cgroup for each command, including the workload. Creating and removing a
 * cgroup takes a tenth of a small command's CPU time. So one is created in advance, and old ones are removed after the
 * response. Cgroups are not reused, because a command may have set limits in its cgroup.
 */
export class Cgroups {
  readonly session: CgroupDirectory;
  readonly memory: SessionMemory;
  readonly #calls: Addon;
  readonly #base: CgroupDirectory;
  #count = 0;
  #ready: CgroupDirectory | undefined;
  #sweepPending: NodeJS.Immediate | undefined;
  #closed = false;
  /**
   * Number of cgroups that were released since the last call of #sweep, which removes released cgroups. Their names are
   * at the front of `#toRemove`.
   */
  #newlyReleased = 0;
  /** Names of released cgroups that still exist. */
  readonly #toRemove: string[] = [];

  private constructor(calls: Addon, base: CgroupDirectory, session: CgroupDirectory) {
    this.#calls = calls;
    this.#base = base;
    this.session = session;
    this.memory = new SessionMemory(session);
  }

  /**
   * Opens the agent's cgroup. Returns undefined if the agent cannot create cgroups below its own cgroup: the cgroup is
   * not delegated, the agent is not privileged, or Linux is older than 5.14.
   */
  static open(calls: Addon): Cgroups | undefined {
    const base = openOwnCgroup(calls);
    if (base === undefined) return undefined;
    removeAbandoned(base);
    const session = makeSession(base);
    if (session === undefined) {
      base.close();
      return undefined;
    }
    // Enables the memory controller, which counts OOM kills. This fails unless the agent is in a root cgroup
    // (cgroups(7), "no internal processes"). The number of OOM kills is then missing.
    for (const directory of [base, session]) directory.write("cgroup.subtree_control", "+memory");
    return new Cgroups(calls, base, session);
  }

  /** Returns a new, empty cgroup; undefined if the kernel refuses. */
  create(): Cgroup | undefined {
    const made = this.#ready ?? this.#make();
    this.#ready = undefined;
    this.#sweepSoon();
    return made && new Cgroup(this.#calls, made, () => this.#release(made.name));
  }

  /**
   * Opens the cgroup of an ended command again by its name. The caller closes it. Returns "removed" if the cgroup no
   * longer exists because its last process has ended. Returns "unreadable" if it cannot be opened now, for example for
   * lack of descriptors.
   */
  reopen(name: string): Cgroup | "removed" | "unreadable" {
    const fd = this.#calls.openAt(this.session.fd, name, DIRECTORY);
    if (fd === -system.errno.ENOENT) return "removed";
    return fd < 0 ? "unreadable" : new Cgroup(this.#calls, { fd, name }, () => {});
  }

  /** Removes all empty cgroups and leaves the others. Later calls of `create` are invalid. */
  close(): void {
    clearImmediate(this.#sweepPending);
    this.#closed = true;
    this.#ready?.close();
    remove(this.#base, this.session);
    this.session.close();
    this.#base.close();
  }

  #make(): CgroupDirectory | undefined {
    return this.session.make(`svc-guest-${process.pid}-${++this.#count}`);
  }

  #release(name: string): void {
    this.#toRemove.unshift(name);
    this.#newlyReleased++;
    this.#sweepSoon();
  }

  /** Sweeps in a later tick of the event loop, so that the responses of this tick are not delayed. */
  #sweepSoon(): void {
    if (this.#closed) return;
    this.#sweepPending ??= setImmediate(() => {
      this.#sweepPending = undefined;
      this.#sweep(this.#newlyReleased + SWEEP_AT_ONCE);
      this.#newlyReleased = 0;
      this.#ready ??= this.#make();
    });
  }

  /** Tries to remove the cgroups at the front of the queue. Busy ones are moved to its back. */
  #sweep(limit: number): void {
    for (const name of this.#toRemove.splice(0, limit)) {
      if (!this.session.remove(name)) this.#toRemove.push(name);
    }
  }
}

/** Creates the session's cgroup and locks it. The lock lasts as long as the agent or the launcher lives. */
function makeSession(base: CgroupDirectory): CgroupDirectory | undefined {
  for (let attempt = 1; attempt <= NAME_ATTEMPTS; attempt++) {
    const suffix = attempt === 1 ? "" : `-${attempt}`;
    const made = base.make(`svc-guest-${process.pid}-session${suffix}`);
    if (made === undefined) continue;
    // Before the lock is taken, another agent may consider the cgroup abandoned and remove it. In this case the next
    // name is tried.
    if (made.lock() && made.read("cgroup.freeze") !== undefined) return made;
    made.close();
  }
  return undefined;
}

/** Removes a session's cgroup and the cgroups below it, except for cgroups with processes. */
function remove(base: CgroupDirectory, session: CgroupDirectory): void {
  session.removeBelow(REMOVED_LIMIT);
  base.remove(session.name);
}

/** Thaws and removes the session cgroups of killed agents. A locked cgroup belongs to a running agent and stays. */
function removeAbandoned(base: CgroupDirectory): void {
  // The body of this loop must not become a function. The build caches the compiled code of all functions that run
  // during the build, and this one would run only if other agents run on the build machine. Two machines could then
  // build different files.
  for (const name of base.names()) {
    if (!OF_A_SESSION.test(name)) continue;
    const directory = base.open(name);
    if (directory?.lock() === true) {
      directory.write("cgroup.freeze", "0");
      remove(base, directory);
    }
    directory?.close();
  }
}
