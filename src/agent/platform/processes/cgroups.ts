import { Cgroup } from "./cgroup.ts";
import type { Addon } from "../../native/index.ts";
import type { CgroupFolder } from "./cgroup-folder.ts";
import { openOwnCgroup } from "./own-cgroup.ts";
import { SessionMemory } from "./session-memory.ts";

/** Another agent, in another process namespace, may have the same process id and the same base. */
const NAME_ATTEMPTS = 16;
/** Busy cgroups whose removal is retried whenever one is removed; 10 us each. */
const SWEEP_AT_ONCE = 4;
/** Names of sessions' cgroups: the agent's process id, and a number where another agent has the same id. */
const OF_A_SESSION = /^svc-guest-\d+-session(-\d+)?$/;
/** Most cgroups of a session that are removed together: a command can make any number. */
const REMOVED_LIMIT = 4_096;

/**
 * The cgroup of the session, below the agent's own, and in it one for the workload and one for each command. Keeps one
 * ready, and removes used ones after the callers have their answers: together these take a tenth of a small command's
 * CPU time. Uses none twice, as a command may have set limits in its own.
 */
export class Cgroups {
  /** The cgroup of the session. */
  readonly session: CgroupFolder;
  /** The session's limit. */
  readonly memory: SessionMemory;
  readonly #calls: Addon;
  readonly #base: CgroupFolder;
  #count = 0;
  #ready: CgroupFolder | undefined;
  #tidying: NodeJS.Immediate | undefined;
  #closed = false;
  /** How many at the front of `#left` have not been tried yet. */
  #givenBack = 0;
  /** Names of released cgroups that still exist. */
  readonly #left: string[] = [];

  private constructor(calls: Addon, base: CgroupFolder, session: CgroupFolder) {
    this.#calls = calls;
    this.#base = base;
    this.session = session;
    this.memory = new SessionMemory(session);
  }

  /** Undefined where the agent cannot make cgroups: not delegated, no privileges, or Linux before 5.14. */
  static open(calls: Addon): Cgroups | undefined {
    const base = openOwnCgroup(calls);
    if (base === undefined) return undefined;
    removeAbandoned(base);
    const session = makeSession(base);
    if (session === undefined) {
      base.close();
      return undefined;
    }
    // Counts out-of-memory kills. The kernel permits it in a root cgroup. In any other the agent's own presence forbids
    // it (cgroups(7), "no internal processes"), and only the count is missing.
    for (const folder of [base, session]) folder.write("cgroup.subtree_control", "+memory");
    return new Cgroups(calls, base, session);
  }

  /** A new, empty cgroup; undefined when the kernel gives none now. */
  create(): Cgroup | undefined {
    const made = this.#ready ?? this.#make();
    this.#ready = undefined;
    this.#tidySoon();
    return made && new Cgroup(this.#calls, made.fd, () => this.#giveBack(made.name));
  }

  /** Removes all empty cgroups and leaves the rest. Makes none afterwards. */
  close(): void {
    clearImmediate(this.#tidying);
    this.#closed = true;
    this.#ready?.close();
    remove(this.#base, this.session);
    this.session.close();
    this.#base.close();
  }

  #make(): CgroupFolder | undefined {
    return this.session.make(`svc-guest-${process.pid}-${++this.#count}`);
  }

  #giveBack(name: string): void {
    this.#left.unshift(name);
    this.#givenBack++;
    this.#tidySoon();
  }

  /** Tidies in a later tick, so that the answers of this one do not wait. */
  #tidySoon(): void {
    if (this.#closed) return;
    this.#tidying ??= setImmediate(() => {
      this.#tidying = undefined;
      this.#sweep(this.#givenBack + SWEEP_AT_ONCE);
      this.#givenBack = 0;
      this.#ready ??= this.#make();
    });
  }

  /** Tries to remove those at the front; busy ones go to the back. */
  #sweep(limit: number): void {
    for (const name of this.#left.splice(0, limit)) {
      if (!this.session.remove(name)) this.#left.push(name);
    }
  }
}

/** The cgroup of a new session, locked for as long as its agent or the launcher lives. */
function makeSession(base: CgroupFolder): CgroupFolder | undefined {
  for (let attempt = 1; attempt <= NAME_ATTEMPTS; attempt++) {
    const made = base.make(`svc-guest-${process.pid}-session${attempt === 1 ? "" : `-${attempt}`}`);
    if (made === undefined) continue;
    // Before it is locked, another agent that starts now may take it for abandoned, and remove it.
    if (made.lock() && made.read("cgroup.freeze") !== undefined) return made;
    made.close();
  }
  return undefined;
}

/** Removes a session's cgroup with those below it, as far as nothing lives in them. */
function remove(base: CgroupFolder, session: CgroupFolder): void {
  session.removeBelow(REMOVED_LIMIT);
  base.remove(session.name);
}

/** Removes killed agents' sessions, and thaws what lives in them. Those of living agents are locked. */
function removeAbandoned(base: CgroupFolder): void {
  // Not a function: whether the code cache had it would depend on other agents of the build machine.
  for (const name of base.names()) {
    if (!OF_A_SESSION.test(name)) continue;
    const folder = base.open(name);
    if (folder?.lock() === true) {
      folder.write("cgroup.freeze", "0");
      remove(base, folder);
    }
    folder?.close();
  }
}
