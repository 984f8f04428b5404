import { closeSync, constants, readFileSync, writeSync } from "node:fs";
import { constants as system } from "node:os";
import { errnoOf } from "../../../shared/errors.ts";
import type { Errno } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";

/** Flags of open(2) for a directory. */
export const DIRECTORY: number = constants.O_RDONLY | constants.O_DIRECTORY;
/** An invalid descriptor: every call with it fails with EBADF. */
const CLOSED = -1;

/**
 * An open directory of the cgroup file system (cgroups(7)); it owns the descriptor. Access can fail in many ways
 * (ENOTSUP for a threaded cgroup, ENODEV for a removed one), so methods never throw: the result (undefined, false or an
 * errno) shows the failure.
 */
export class CgroupDirectory {
  /** Path of the cgroup relative to the directory from which it was opened. */
  readonly name: string;
  readonly #addon: Addon;
  #fd: number;

  constructor(addon: Addon, fd: number, name: string = "") {
    this.name = name;
    this.#addon = addon;
    this.#fd = fd;
  }

  get fd(): number {
    return this.#fd;
  }

  /**
   * Closes the descriptor. Later calls of methods fail with EBADF; they do not use the old number, which may then
   * belong to another directory.
   */
  close(): void {
    if (this.#fd !== CLOSED) closeSync(this.#fd);
    this.#fd = CLOSED;
  }

  /** Content of a file; undefined if the kernel refuses. */
  read(file: string): string | undefined {
    const fd = this.#addon.openAt(this.#fd, file, constants.O_RDONLY);
    if (fd < 0) return undefined;
    try {
      return readFileSync(fd, "utf8");
    } catch {
      return undefined;
    } finally {
      closeSync(fd);
    }
  }

  /** Value of a key in a file of `key value` lines; undefined if it is missing. */
  value(file: string, key: string): number | undefined {
    const value = new RegExp(`^${key} (\\d+)$`, "m").exec(this.read(file) ?? "")?.[1];
    return value === undefined ? undefined : Number(value);
  }

  /** Writes to a file. Returns undefined on success, otherwise the errno. */
  write(file: string, text: string): Errno | undefined {
    const fd = this.#addon.openAt(this.#fd, file, constants.O_WRONLY);
    if (fd < 0) return errnoName(fd);
    try {
      writeSync(fd, text);
      return undefined;
    } catch (error) {
      return errnoOf(error) ?? "UNKNOWN";
    } finally {
      closeSync(fd);
    }
  }

  /** Opens a directory below this one. The caller closes the result. Undefined if the kernel refuses. */
  open(path: string): CgroupDirectory | undefined {
    const fd = this.#addon.openAt(this.#fd, path, DIRECTORY);
    return fd < 0 ? undefined : new CgroupDirectory(this.#addon, fd, path);
  }

  /** Creates a cgroup below this one; undefined if the name is taken or the kernel refuses. */
  make(name: string): CgroupDirectory | undefined {
    if (this.#addon.makeDirectoryAt(this.#fd, name) < 0) return undefined;
    const made = this.open(name);
    if (made === undefined) this.remove(name);
    return made;
  }

  /** Removes a cgroup directly below this one. Returns false if it contains processes. */
  remove(name: string): boolean {
    return this.#addon.removeDirectoryAt(this.#fd, name) !== -system.errno.EBUSY;
  }

  /** Names of the cgroups directly below this one. */
  names(): readonly string[] {
    const names = this.#addon.directoriesIn(this.#fd);
    return typeof names === "number" ? [] : names;
  }

  /** Removes up to `limit` descendant cgroups that have no processes. */
  removeBelow(limit: number): void {
    this.#eachBelow({ left: limit }, ({ name }, parent) => void parent.remove(name));
  }

  /**
   * Ids of the processes in this cgroup and in the cgroups below it. Visits at most `limit` cgroups, because a command
   * may create any number.
   */
  members(limit: number): Set<number> {
    const found = new Set<number>();
    const add = (directory: CgroupDirectory): void => {
      // In a threaded cgroup, cgroup.procs cannot be read, but cgroup.threads can. It contains the id of each process,
      // because the first thread of a process has the same id as the process.
      const listed = directory.read("cgroup.procs") ?? directory.read("cgroup.threads") ?? "";
      for (const pid of listed.split("\n").map(Number)) if (pid > 0) found.add(pid);
    };
    add(this);
    this.#eachBelow({ left: limit }, add);
    return found;
  }

  /** Resource usage of this cgroup and those below, as Addon.usedIn returns it. */
  used(): Float64Array {
    return this.#addon.usedIn(this.#fd);
  }

  /**
   * Locks the directory until all processes that share the descriptor have closed it. Returns false if it is already
   * locked.
   */
  lock(): boolean {
    return this.#addon.lock(this.#fd) === 0;
  }

  /** Visits up to `limit` cgroups below this one, children before parents. */
  #eachBelow(limit: { left: number }, visit: (below: CgroupDirectory, parent: CgroupDirectory) => void): void {
    for (const name of this.names()) {
      if (limit.left === 0) return;
      const below = this.open(name);
      if (below === undefined) continue;
      limit.left--;
      below.#eachBelow(limit, visit);
      visit(below, this);
      below.close();
    }
  }
}
