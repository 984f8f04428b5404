import { type BigIntStats, close, constants, fchmod, fchown, fstat, fsync, futimes, read } from "node:fs";
import { promisify } from "node:util";
import {
  type FileAttributes,
  type FileOwner,
  type FileStep,
  FileSystemError,
  type FileType,
} from "../../domain/index.ts";
import { type Addon, errnoName, failedWith } from "../../native/index.ts";

/** The part of the addon that files use. */
export type FileAddon = Pick<
  Addon,
  "openIn" | "placeIn" | "moveIn" | "makeFolderIn" | "removeIn" | "targetOf" | "readCached" | "SummingWriter"
>;

/**
 * libuv has four threads for file work. File calls use three; one stays free for other needs (the user database of a
 * command, the credentials), so that a file system that hangs can stop file calls but not the agent.
 */
const THREADS = 3;

/** The addon, and the threads that file calls may use. An operation waits while all are busy. */
export class FileWork {
  readonly addon: FileAddon;
  #free: number = THREADS;
  readonly #waiting: (() => void)[] = [];

  constructor(addon: FileAddon) {
    this.addon = addon;
  }

  /** Whether more than one operation is running. */
  get busy(): boolean {
    return this.#free < THREADS - 1;
  }

  /** Runs one step. Turns a failed system call into a FileSystemError. */
  async step<Value>(name: FileStep, operation: () => Promise<Value>): Promise<Value> {
    try {
      return await this.#run(operation);
    } catch (error) {
      const errno = failedWith(error);
      throw errno === undefined ? error : new FileSystemError(name, errno, error);
    }
  }

  /** Runs one step in the addon, which resolves with a negated errno where it fails. */
  async native(name: FileStep, job: () => Promise<number>): Promise<number> {
    const result = await this.step(name, job);
    if (result < 0) throw new FileSystemError(name, errnoName(result));
    return result;
  }

  /** Opens a path in a folder; flags as open(2) has them, `resolve` as openat2(2). Throws FileSystemError. */
  async openIn(
    step: FileStep,
    folder: number,
    path: Uint8Array,
    flags: number,
    { mode = 0, resolve = 0 }: { readonly mode?: number; readonly resolve?: number } = {},
  ): Promise<Descriptor> {
    return new Descriptor(await this.native(step, () => this.addon.openIn(folder, path, flags, mode, resolve)), this);
  }

  /** Runs a clean-up whose failure does not matter. Never rejects. */
  async attempt(operation: () => Promise<unknown>): Promise<void> {
    await this.#run(operation).catch(() => undefined);
  }

  async #run<Value>(operation: () => Promise<Value>): Promise<Value> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await operation();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}

const TYPES: ReadonlyMap<number, FileType> = new Map([
  [constants.S_IFREG, "regular"],
  [constants.S_IFDIR, "directory"],
  [constants.S_IFLNK, "symlink"],
  [constants.S_IFIFO, "fifo"],
  [constants.S_IFSOCK, "socket"],
  [constants.S_IFCHR, "character_device"],
  [constants.S_IFBLK, "block_device"],
]);

/** The result of stat(2) in the domain's terms. */
export function fileAttributes(stats: BigIntStats): FileAttributes {
  const mode = Number(stats.mode);
  return {
    type: TYPES.get(mode & constants.S_IFMT) ?? "unknown",
    // Node reads these unsigned fields as signed.
    sizeBytes: BigInt.asUintN(64, stats.size),
    inode: BigInt.asUintN(64, stats.ino),
    links: BigInt.asUintN(64, stats.nlink),
    mode: mode & 0o7777,
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    modifiedNs: stats.mtimeNs,
    accessedNs: stats.atimeNs,
    changedNs: stats.ctimeNs,
  };
}

const closeDescriptor = promisify(close);
const readDescriptor = promisify(read);
const statDescriptor: (fd: number, options: { bigint: true }) => Promise<BigIntStats> = promisify(fstat);
const syncDescriptor = promisify(fsync);
const chownDescriptor = promisify(fchown);
const chmodDescriptor = promisify(fchmod);
const touchDescriptor = promisify(futimes);

/** Largest offset of off_t. Node throws where a read could go beyond it. */
const MAX_OFFSET_BYTES = 2n ** 63n - 1n;

/** Opens paths: any, or those beneath a folder. Flags as open(2) has them. Throws FileSystemError. */
export type OpenPath = (step: FileStep, path: Uint8Array, flags: number) => Promise<Descriptor>;

/** An open file or folder. Its opener disposes of it, once, which closes it. */
export class Descriptor implements AsyncDisposable {
  readonly fd: number;
  readonly #work: FileWork;

  constructor(fd: number, work: FileWork) {
    this.fd = fd;
    this.#work = work;
  }

  async attributes(step: FileStep): Promise<FileAttributes> {
    return fileAttributes(await this.#work.step(step, () => statDescriptor(this.fd, { bigint: true })));
  }

  /** Reads from the offset, or from where the last read ended. Returns 0 beyond the largest possible offset. */
  async read(target: Uint8Array, offsetBytes: bigint | undefined): Promise<number> {
    if (offsetBytes !== undefined && offsetBytes > MAX_OFFSET_BYTES - BigInt(target.length)) return 0;
    const { bytesRead } = await this.#work.step("read", () =>
      readDescriptor(this.fd, target, 0, target.length, offsetBytes ?? null),
    );
    return bytesRead;
  }

  async chown({ uid, gid }: FileOwner): Promise<void> {
    await this.#work.step("chown", () => chownDescriptor(this.fd, uid, gid));
  }

  async chmod(mode: number): Promise<void> {
    await this.#work.step("chmod", () => chmodDescriptor(this.fd, mode));
  }

  /** Seconds since 1970, with fractions. */
  async setTimes(accessed: number, modified: number): Promise<void> {
    // Node takes a negative number for now, but not a text of one.
    await this.#work.step("utime", () => touchDescriptor(this.fd, String(accessed), String(modified)));
  }

  async sync(step: FileStep): Promise<void> {
    await this.#work.step(step, () => syncDescriptor(this.fd));
  }

  /** Never rejects. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#work.attempt(() => closeDescriptor(this.fd));
  }
}
