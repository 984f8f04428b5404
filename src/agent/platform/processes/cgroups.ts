import { closeSync } from "node:fs";
import { constants as system } from "node:os";
import { Cgroup } from "./cgroup.ts";
import type { Addon } from "../../native/index.ts";
import { FOLDER, openOwnCgroup, readAt, writeAt } from "./cgroup-base.ts";
import { SessionMemory } from "./session-memory.ts";

/** Another agent, in another process namespace, may have the same process id and the same base. */
const NAME_ATTEMPTS = 16;
/** Busy cgroups that are tried again whenever one is removed; 10 us each. */
const SWEEP_AT_ONCE = 4;
/** Names of sessions' cgroups: the agent's process id, and a number where another agent has the same id. */
const OF_A_SESSION = /^svc-guest-\d+-session(-\d+)?$/;
/** Most cgroups of a session that are removed together: a command can make any number. */
const REMOVED_LIMIT = 4_096;
const { EBUSY } = system.errno;

/** A cgroup that has been made, and is open. */
interface Made {
  readonly name: string;
  readonly folder: number;
}

/**
 * The cgroup of the session, below the agent's own, and in it one for the workload and one for each command. Keeps one
 * ready, and removes used ones after the callers have their answers: together these take a tenth of a small command's
 * CPU time. Uses none twice, as a command may have set limits in its own.
 */
export class Cgroups {
  readonly #calls: Addon;
  readonly #base: number;
  readonly #session: Made;
  readonly #memory: SessionMemory;
  #count = 0;
  #ready: Made | undefined;
  #tidying: NodeJS.Immediate | undefined;
  #closed = false;
  /** How many at the front of `#left` have not been tried yet. */
  #givenBack = 0;
  /** Names of released cgroups that still exist. */
  readonly #left: string[] = [];

  private constructor(calls: Addon, base: number, session: Made) {
    this.#calls = calls;
    this.#base = base;
    this.#session = session;
    this.#memory = new SessionMemory(calls, session.folder);
  }

  /** Undefined where the agent cannot make cgroups: not delegated, no privileges, or Linux before 5.14. */
  static open(calls: Addon): Cgroups | undefined {
    const base = openOwnCgroup(calls);
    if (base === undefined) return undefined;
    removeAbandoned(calls, base);
    const session = makeSession(calls, base);
    if (session === undefined) {
      closeSync(base);
      return undefined;
    }
    // Counts out-of-memory kills. The kernel permits it in a root cgroup. In any other the agent's own presence forbids
    // it (cgroups(7), "no internal processes"), and only the count is missing.
    for (const folder of [base, session.folder]) writeAt(calls, folder, "cgroup.subtree_control", "+memory");
    return new Cgroups(calls, base, session);
  }

  /** The session's cgroup: its name below the agent's own, and its open folder. */
  get session(): { readonly name: string; readonly folder: number } {
    return this.#session;
  }

  /** Makes the session's limit follow the guest's memory. */
  followMemory(): void {
    this.#memory.follow();
  }

  /** A new, empty cgroup; undefined when the kernel gives none now. */
  create(): Cgroup | undefined {
    const made = this.#ready ?? this.#make();
    this.#ready = undefined;
    this.#tidySoon();
    return made && new Cgroup(this.#calls, made.folder, () => this.#giveBack(made.name));
  }

  /** Removes all empty cgroups and leaves the rest. Makes none afterwards. */
  close(): void {
    clearImmediate(this.#tidying);
    this.#closed = true;
    if (this.#ready !== undefined) closeSync(this.#ready.folder);
    removeTree(this.#calls, this.#base, this.#session);
    closeSync(this.#session.folder);
    closeSync(this.#base);
  }

  #make(): Made | undefined {
    return make(this.#calls, this.#session.folder, `svc-guest-${process.pid}-${++this.#count}`);
  }

  #giveBack(name: string): void {
    this.#left.unshift(name);
    this.#givenBack++;
    this.#tidySoon();
  }

  /** Tidies in a later turn of the event loop, so that the answers of this one do not wait. */
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
      const busy = this.#calls.removeFolderAt(this.#session.folder, name) === -EBUSY;
      if (busy) this.#left.push(name);
    }
  }
}

function make(calls: Addon, parent: number, name: string): Made | undefined {
  if (calls.makeFolderAt(parent, name) < 0) return undefined;
  const folder = calls.openAt(parent, name, FOLDER);
  if (folder >= 0) return { name, folder };
  calls.removeFolderAt(parent, name);
  return undefined;
}

/** The cgroup of a new session, locked for as long as its agent or the launcher lives. */
function makeSession(calls: Addon, base: number): Made | undefined {
  for (let attempt = 1; attempt <= NAME_ATTEMPTS; attempt++) {
    const name = `svc-guest-${process.pid}-session${attempt === 1 ? "" : `-${attempt}`}`;
    const made = make(calls, base, name);
    if (made === undefined) continue;
    // Before it is locked, another agent that starts now may take it for abandoned, and remove it.
    if (calls.lock(made.folder) === 0 && readAt(calls, made.folder, "cgroup.freeze") !== undefined) return made;
    closeSync(made.folder);
  }
  return undefined;
}

/** Removes a cgroup with those below it, as far as nothing lives in them. */
function removeTree(calls: Addon, parent: number, { name, folder }: Made, limit = { left: REMOVED_LIMIT }): void {
  const names = calls.foldersIn(folder);
  for (const below of typeof names === "number" ? [] : names) {
    if (limit.left-- <= 0) continue;
    const opened = calls.openAt(folder, below, FOLDER);
    if (opened < 0) continue;
    removeTree(calls, folder, { name: below, folder: opened }, limit);
    closeSync(opened);
  }
  calls.removeFolderAt(parent, name);
}

/** Removes killed agents' sessions, and thaws what lives in them. Those of living agents are locked. */
function removeAbandoned(calls: Addon, base: number): void {
  const names = calls.foldersIn(base);
  if (typeof names === "number") return;
  // Not a function: whether the code cache had it would depend on other agents of the build machine.
  for (const name of names) {
    if (!OF_A_SESSION.test(name)) continue;
    const folder = calls.openAt(base, name, FOLDER);
    if (folder < 0) continue;
    if (calls.lock(folder) === 0) {
      writeAt(calls, folder, "cgroup.freeze", "0");
      removeTree(calls, base, { name, folder });
    }
    closeSync(folder);
  }
}
