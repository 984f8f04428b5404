import { closeSync, constants, readFileSync, writeSync } from "node:fs";

import type { CgroupCalls } from "./cgroup-base.ts";

const FOLDER = constants.O_RDONLY | constants.O_DIRECTORY;
/** Most cgroups below a command's own that are searched for members: a command can make any number. */
const NESTED_LIMIT = 256;
/** No descriptor: every call fails with EBADF. */
const NO_FOLDER = -1;

type CgroupFiles = Pick<CgroupCalls, "openAt" | "namesIn">;

/** Value of a key in a file of `key value` lines; undefined when it is not there. */
function valueOf(text: string | undefined, key: string): number | undefined {
  const value = new RegExp(`^${key} (\\d+)$`, "m").exec(text ?? "")?.[1];
  return value === undefined ? undefined : Number(value);
}

/**
 * The cgroup of one command (cgroups(7)): everything that it starts stays in it. A root command may do anything to its
 * own cgroup, whose files may then fail in several ways (ENOTSUP of a threaded one, ENODEV of a removed one). Such a
 * failure means "unknown" or "not done"; nothing throws.
 */
export class Cgroup {
  readonly #calls: CgroupFiles;
  readonly #giveBack: () => void;
  #folder: number;

  constructor(calls: CgroupFiles, folder: number, giveBack: () => void) {
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
    return this.#write("cgroup.kill", "1");
  }

  /** Thaws frozen processes, which would not act on a signal. */
  thaw(): void {
    this.#write("cgroup.freeze", "0");
  }

  /** Whether a process in it or below it is alive. Undefined: unknown. */
  populated(): boolean | undefined {
    const populated = valueOf(read(this.#calls, this.#folder, "cgroup.events"), "populated");
    return populated === undefined ? undefined : populated === 1;
  }

  /** Ids of the processes in it and below it, as far as they are known. */
  members(): ReadonlySet<number> {
    const found = new Set<number>();
    addMembers(this.#calls, this.#folder, found, { left: NESTED_LIMIT });
    return found;
  }

  /**
   * Whether the out-of-memory killer struck in it or below it. False where the memory controller does not count for it.
   */
  oomKilled(): boolean {
    return (valueOf(read(this.#calls, this.#folder, "memory.events"), "oom_kill") ?? 0) > 0;
  }

  /**
   * Releases it: it is removed as soon as nothing lives in it. From then on nothing is known of it, and nothing done to it:
   * its descriptor's number may be that of the next command's cgroup.
   */
  release(): void {
    closeSync(this.#folder);
    this.#folder = NO_FOLDER;
    this.#giveBack();
  }

  #write(name: string, text: string): boolean {
    const fd = this.#calls.openAt(this.#folder, name, constants.O_WRONLY);
    if (fd < 0) return false;
    try {
      writeSync(fd, text);
      return true;
    } catch {
      return false;
    } finally {
      closeSync(fd);
    }
  }
}

/** Content of a file; undefined if the kernel refuses for any reason. */
function read(calls: CgroupFiles, folder: number, name: string): string | undefined {
  const fd = calls.openAt(folder, name, constants.O_RDONLY);
  if (fd < 0) return undefined;
  try {
    return readFileSync(fd, "utf8");
  } catch {
    return undefined;
  } finally {
    closeSync(fd);
  }
}

function addMembers(calls: CgroupFiles, folder: number, found: Set<number>, nested: { left: number }): void {
  // A threaded cgroup lists only threads. The first thread of a process has the process's id.
  const listed = read(calls, folder, "cgroup.procs") ?? read(calls, folder, "cgroup.threads") ?? "";
  for (const pid of listed.split("\n").map(Number)) if (pid > 0) found.add(pid);
  if (valueOf(read(calls, folder, "cgroup.stat"), "nr_descendants") === 0) return;
  const names = calls.namesIn(folder);
  if (typeof names === "number") return;
  for (const name of names.filter((of) => !of.startsWith("."))) {
    if (nested.left === 0) return;
    const below = calls.openAt(folder, name, FOLDER);
    if (below < 0) continue;
    nested.left--;
    addMembers(calls, below, found, nested);
    closeSync(below);
  }
}
