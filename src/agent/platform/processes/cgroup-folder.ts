import { closeSync, constants, readFileSync, writeSync } from "node:fs";
import { constants as system } from "node:os";
import { errnoOf } from "../../../shared/errors.ts";
import type { Errno } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";

/** Flags to open a folder with. */
export const FOLDER: number = constants.O_RDONLY | constants.O_DIRECTORY;
/** No descriptor: every call fails with EBADF. */
const CLOSED = -1;

/**
 * An open folder of the cgroup file system (cgroups(7)). Owns the descriptor. Its files may fail in several ways
 * (ENOTSUP of a threaded cgroup, ENODEV of a removed one). Such a failure means "unknown" or "not done"; nothing
 * throws.
 */
export class CgroupFolder {
  /** The path that it was opened by, from the folder above. */
  readonly name: string;
  readonly #addon: Addon;
  #fd: number;

  constructor(addon: Addon, fd: number, name: string = "") {
    this.name = name;
    this.#addon = addon;
    this.#fd = fd;
  }

  /** The descriptor. */
  get fd(): number {
    return this.#fd;
  }

  /** From then on nothing is known of it, and nothing done to it: the number may be that of another folder. */
  close(): void {
    if (this.#fd !== CLOSED) closeSync(this.#fd);
    this.#fd = CLOSED;
  }

  /** Content of a file; undefined where the kernel refuses, for whatever reason. */
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

  /** Value of a key in a file of `key value` lines; undefined where it is not there. */
  value(file: string, key: string): number | undefined {
    const value = new RegExp(`^${key} (\\d+)$`, "m").exec(this.read(file) ?? "")?.[1];
    return value === undefined ? undefined : Number(value);
  }

  /** Writes to a file. Undefined: done; else why the kernel refuses. */
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

  /** Opens a folder by its path from this one. */
  open(path: string): CgroupFolder | undefined {
    const fd = this.#addon.openAt(this.#fd, path, FOLDER);
    return fd < 0 ? undefined : new CgroupFolder(this.#addon, fd, path);
  }

  /** Makes a cgroup in it. Undefined: there is one of that name, or the kernel gives none now. */
  make(name: string): CgroupFolder | undefined {
    if (this.#addon.makeFolderAt(this.#fd, name) < 0) return undefined;
    const made = this.open(name);
    if (made === undefined) this.remove(name);
    return made;
  }

  /** Removes a cgroup in it. False: something lives there. */
  remove(name: string): boolean {
    return this.#addon.removeFolderAt(this.#fd, name) !== -system.errno.EBUSY;
  }

  /** Names of the cgroups in it. */
  names(): readonly string[] {
    const names = this.#addon.foldersIn(this.#fd);
    return typeof names === "number" ? [] : names;
  }

  /** Removes the cgroups below it, at most so many, as far as nothing lives in them. */
  removeBelow(limit: number): void {
    this.#eachBelow({ left: limit }, ({ name }, parent) => void parent.remove(name));
  }

  /** Ids of the processes in it and below it, as far as they are known: a command can make any number of cgroups. */
  members(limit: number): Set<number> {
    const found = new Set<number>();
    const add = (folder: CgroupFolder): void => {
      // A threaded cgroup lists only threads. The first thread of a process has the process's id.
      const listed = folder.read("cgroup.procs") ?? folder.read("cgroup.threads") ?? "";
      for (const pid of listed.split("\n").map(Number)) if (pid > 0) found.add(pid);
    };
    add(this);
    this.#eachBelow({ left: limit }, add);
    return found;
  }

  /** What has been used in it and below; of Addon.usedIn. */
  used(): Float64Array {
    return this.#addon.usedIn(this.#fd);
  }

  /** Locks it, for as long as this process or another has the open folder. False: it is locked. */
  lock(): boolean {
    return this.#addon.lock(this.#fd) === 0;
  }

  /** Calls back with the cgroups below, at most so many, each after those below it. */
  #eachBelow(limit: { left: number }, visit: (below: CgroupFolder, parent: CgroupFolder) => void): void {
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
