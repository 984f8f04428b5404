import { type BigIntStats, close, constants, fstat, fsync, read } from "node:fs";
import { promisify } from "node:util";
import type { FileAttributes, FileType } from "../attributes.ts";
import type { FileStep, Mount } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import type { Held, Work } from "../threads/operation.ts";
import { failureOf } from "../threads/steps.ts";
import type { FileWork } from "../threads/work.ts";

const TYPES: ReadonlyMap<number, FileType> = new Map([
  [constants.S_IFREG, "regular"],
  [constants.S_IFDIR, "directory"],
  [constants.S_IFLNK, "symlink"],
  [constants.S_IFIFO, "fifo"],
  [constants.S_IFSOCK, "socket"],
  [constants.S_IFCHR, "character_device"],
  [constants.S_IFBLK, "block_device"],
]);

/** The type in a mode (st_mode). */
export function typeOfMode(mode: number): FileType {
  return TYPES.get(mode & constants.S_IFMT) ?? "unknown";
}

/** Of st_blocks. */
const BLOCK_BYTES = 512n;

/** The result of stat(2) in the domain's terms. */
export function fileAttributes(stats: BigIntStats): FileAttributes {
  const mode = Number(stats.mode);
  return {
    type: typeOfMode(mode),
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
    hasHoles: stats.blocks * BLOCK_BYTES < stats.size,
  };
}

const closeDescriptor = promisify(close);
const readDescriptor = promisify(read);
const statDescriptor: (fd: number, options: { bigint: true }) => Promise<BigIntStats> = promisify(fstat);
const syncDescriptor = promisify(fsync);
/** Largest offset of off_t. Node throws where a read could go beyond it. */
const MAX_OFFSET_BYTES = 2n ** 63n - 1n;

/** Opens paths: any, or those beneath a folder. Flags as open(2) has them. Throws FileSystemError. */
export type OpenPath = (step: FileStep, path: Uint8Array, flags: number) => Promise<Descriptor>;

/** Opens a path in a folder; flags as open(2) has them, `resolve` as openat2(2). Throws FileSystemError. */
export async function openIn(
  work: FileWork,
  how: Work<Descriptor>,
  folder: number,
  path: Uint8Array,
  flags: number,
  { mode = 0, resolve = 0 }: { readonly mode?: number; readonly resolve?: number } = {},
): Promise<Descriptor> {
  return openedBy(work, how, (addon) => addon.openIn(folder, path, flags, mode, resolve));
}

/** Runs a call of the addon that opens a descriptor. Throws FileSystemError. */
export async function openedBy(
  work: FileWork,
  how: Work<Descriptor>,
  open: (addon: Addon) => Promise<number>,
): Promise<Descriptor> {
  const late = (fd: number): void => {
    if (fd < 0) return;
    const opened = new Descriptor(fd, work);
    how.late?.(opened);
    void opened[Symbol.asyncDispose]();
  };
  return new Descriptor(await work.native({ ...how, late }, open), work);
}

/** A call of the addon with the descriptor; where it fails it resolves with a negated errno. */
export type NativeJob<Value> = (addon: Addon, fd: number) => Promise<Value>;

/** An open file or folder. Its opener disposes of it once: that closes it when no operation uses it any more. */
export class Descriptor implements AsyncDisposable, Held {
  readonly fd: number;
  readonly #work: FileWork;
  #holds = 0;
  #isDisposed = false;
  #wasClosed = false;

  constructor(fd: number, work: FileWork) {
    this.fd = fd;
    this.#work = work;
  }

  hold(): () => void {
    this.#holds += 1;
    return () => {
      this.#holds -= 1;
      if (this.#holds === 0 && this.#isDisposed) void this.#close();
    };
  }

  async attributes(step: FileStep): Promise<FileAttributes> {
    return fileAttributes(await this.#run(step, () => statDescriptor(this.fd, { bigint: true })));
  }

  /** Reads from the offset, or from where the last read ended. Returns 0 beyond the largest possible offset. */
  async read(target: Uint8Array, offsetBytes: bigint | undefined): Promise<number> {
    if (offsetBytes !== undefined && offsetBytes > MAX_OFFSET_BYTES - BigInt(target.length)) return 0;
    const { bytesRead } = await this.#run("read", () =>
      readDescriptor(this.fd, target, 0, target.length, offsetBytes ?? null),
    );
    return bytesRead;
  }

  /** Reads cached data, as the addon does. */
  readCached(target: Uint8Array, position: number): number {
    return this.#work.addon.readCached(this.fd, target, position);
  }

  /** Runs a step of the addon, which works on this file and on the `others`. Throws FileSystemError. */
  async native(step: FileStep, job: NativeJob<number>, others: readonly Held[] = []): Promise<void> {
    await this.#work.native({ step, on: [this, ...others] }, (addon) => job(addon, this.fd));
  }

  /** The same for a step that resolves with bytes. `mount`: what it leads into, if not its own. */
  async nativeBytes(
    step: FileStep,
    job: NativeJob<Buffer | number>,
    mount?: Mount,
    others: readonly Held[] = [],
  ): Promise<Buffer> {
    const on = [this, ...others];
    const result = await this.#work.step({ step, on, mount }, () => job(this.#work.addon, this.fd));
    if (typeof result === "number") throw failureOf(result, step);
    return result;
  }

  /** The signal ends the wait for other syncs, not one that runs. */
  async sync(step: FileStep, signal?: AbortSignal): Promise<void> {
    await this.#work.step({ step, on: [this], signal }, () => syncDescriptor(this.fd));
  }

  /** Its operation has closed it: nothing else may, as its number may be another file's now. */
  wasClosed(): void {
    this.#wasClosed = true;
  }

  /** Never rejects. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
    if (this.#holds === 0) await this.#close();
  }

  #run<Value>(step: FileStep, operation: () => Promise<Value>): Promise<Value> {
    return this.#work.step({ step, on: [this] }, operation);
  }

  async #close(): Promise<void> {
    this.#isDisposed = false;
    if (this.#wasClosed) return;
    this.#wasClosed = true;
    await this.#work.attempt(this, () => closeDescriptor(this.fd));
  }
}
