import { closeSync } from "node:fs";
import { constants as system } from "node:os";
import { Cgroup } from "./cgroup.ts";
import { type CgroupCalls, FOLDER, openOwnCgroup, writeAt } from "./cgroup-base.ts";

/** Another agent, in another process namespace, may have the same process id and the same base. */
const NAME_ATTEMPTS = 16;
/** Busy cgroups that are tried again whenever one is removed; 10 us each. */
const SWEEP_AT_ONCE = 4;
/** Names of the commands' cgroups: the agent's process id and a number. */
const OF_A_COMMAND = /^svc-guest-\d+-\d+$/;
const { EBUSY, EEXIST } = system.errno;

/** A cgroup that is ready and empty. */
interface Made {
  readonly name: string;
  readonly folder: number;
}

/**
 * Makes a cgroup for each command, below the agent's own. Keeps one ready, and removes used ones after the callers have
 * their answers: together that is a tenth of a small command's CPU time. Uses none twice, as a command may have set
 * limits in its own.
 */
export class Cgroups {
  readonly #calls: CgroupCalls;
  readonly #base: number;
  #count = 0;
  #ready: Made | undefined;
  #tidying: NodeJS.Immediate | undefined;
  #closed = false;
  /** How many at the front of `#left` have not been tried yet. */
  #givenBack = 0;
  /** Names of released cgroups that still exist. */
  readonly #left: string[] = [];

  private constructor(calls: CgroupCalls, base: number) {
    this.#calls = calls;
    this.#base = base;
  }

  /** Undefined where the agent cannot make cgroups: not delegated, no privileges, or Linux before 5.14. */
  static open(calls: CgroupCalls): Cgroups | undefined {
    const base = openOwnCgroup(calls);
    if (base === undefined) return undefined;
    removeAbandoned(calls, base);
    // Counts out-of-memory kills. The kernel permits it in a root cgroup; in any other the agent's own presence forbids it
    // (cgroups(7), "no internal processes"), and only the count is missing.
    writeAt(calls, base, "cgroup.subtree_control", "+memory");
    return new Cgroups(calls, base);
  }

  /** The open folder that holds the cgroups. */
  get base(): number {
    return this.#base;
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
    if (this.#ready !== undefined) {
      closeSync(this.#ready.folder);
      this.#left.push(this.#ready.name);
    }
    this.#sweep(this.#left.length);
    closeSync(this.#base);
  }

  #make(): Made | undefined {
    for (let attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
      const name = `svc-guest-${process.pid}-${++this.#count}`;
      const made = this.#calls.makeFolderAt(this.#base, name);
      if (made === -EEXIST) continue;
      if (made < 0) return undefined;
      const folder = this.#calls.openAt(this.#base, name, FOLDER);
      if (folder >= 0) {
        this.#calls.lock(folder);
        return { name, folder };
      }
      this.#calls.removeFolderAt(this.#base, name);
      return undefined;
    }
    return undefined;
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
      const busy = this.#calls.removeFolderAt(this.#base, name) === -EBUSY;
      if (busy) this.#left.push(name);
    }
  }
}

/**
 * Removes cgroups that killed agents left. Living agents hold locks on theirs, and the kernel refuses to remove one with
 * living processes.
 */
function removeAbandoned(calls: CgroupCalls, base: number): void {
  const names = calls.namesIn(base);
  if (typeof names === "number") return;
  for (const name of names.filter((of) => OF_A_COMMAND.test(of))) {
    const folder = calls.openAt(base, name, FOLDER);
    if (folder < 0) continue;
    if (calls.lock(folder) === 0) calls.removeFolderAt(base, name);
    closeSync(folder);
  }
}
