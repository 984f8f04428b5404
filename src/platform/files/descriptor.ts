import { type BigIntStats, close, constants, fchmod, fchown, fstat, fsync, futimes, read } from "node:fs";
import { promisify } from "node:util";
import {
  type FileAttributes,
  type FileOwner,
  type FileStep,
  FileSystemError,
  type FileType,
} from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";
import type { FileThreads } from "./threads.ts";

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

/** Opens paths: any, or those beneath a folder. Throws FileSystemError. */
export interface PathOpener {
  /** Flags of open(2). */
  open(step: FileStep, path: Uint8Array, flags: number): Promise<Descriptor>;
}

/** The result of an addon job. Throws FileSystemError. */
export async function stepOf(threads: FileThreads, step: FileStep, job: () => Promise<number>): Promise<number> {
  const result = await threads.step(step, job);
  if (result < 0) throw new FileSystemError(step, errnoName(result));
  return result;
}

/** An open file or folder. Its opener closes it, once. */
export class Descriptor {
  readonly fd: number;
  readonly #threads: FileThreads;

  constructor(fd: number, threads: FileThreads) {
    this.fd = fd;
    this.#threads = threads;
  }

  async attributes(step: FileStep): Promise<FileAttributes> {
    return fileAttributes(await this.#threads.step(step, () => statDescriptor(this.fd, { bigint: true })));
  }

  /** Reads from the offset, or from where the last read ended. Returns 0 beyond the largest possible offset. */
  async read(target: Uint8Array, offsetBytes: bigint | undefined): Promise<number> {
    if (offsetBytes !== undefined && offsetBytes > MAX_OFFSET_BYTES - BigInt(target.length)) return 0;
    const { bytesRead } = await this.#threads.step("read", () =>
      readDescriptor(this.fd, target, 0, target.length, offsetBytes ?? null),
    );
    return bytesRead;
  }

  async chown({ uid, gid }: FileOwner): Promise<void> {
    await this.#threads.step("chown", () => chownDescriptor(this.fd, uid, gid));
  }

  async chmod(mode: number): Promise<void> {
    await this.#threads.step("chmod", () => chmodDescriptor(this.fd, mode));
  }

  /** Seconds since 1970, with fractions. */
  async setTimes(accessed: number, modified: number): Promise<void> {
    // Node takes a negative number for now, but not a text of one.
    await this.#threads.step("utime", () => touchDescriptor(this.fd, String(accessed), String(modified)));
  }

  async sync(step: FileStep): Promise<void> {
    await this.#threads.step(step, () => syncDescriptor(this.fd));
  }

  /** Never rejects. */
  async close(): Promise<void> {
    await this.#threads.attempt(() => closeDescriptor(this.fd));
  }
}
