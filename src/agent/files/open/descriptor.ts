import { type BigIntStats, close, constants, fstat, fsync, read } from "node:fs";
import { promisify } from "node:util";
import type { FileAttributes, FileType } from "../attributes.ts";
import type { FileStep, Mount } from "../../domain/index.ts";
import { type Addon, AT_EMPTY_PATH } from "../../native/index.ts";
import type { Holdable, Work } from "../threads/operation.ts";
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

export function typeOfMode(mode: number): FileType {
  return TYPES.get(mode & constants.S_IFMT) ?? "unknown";
}

/** Size of the units that st_blocks counts. */
const BLOCK_BYTES = 512n;
const NS_PER_SECOND = 1_000_000_000n;
/** Distance from 1970, in nanoseconds, up to which Node's stat returns exact times. */
const EXACT_LIMIT_NS = 2n ** 53n * NS_PER_SECOND;
const NO_PATH = Buffer.alloc(0);

/** Gets the exact times of the file from the addon. Resolves with the buffer of `timesOf`, or with a negated errno. */
export type ExactTimes = () => Promise<Buffer | number>;

/**
 * Converts the result of Node's stat. Node rounds a time that is more than 2^53 seconds before or after 1970. If it may
 * have rounded one of the times, all times are taken from `exactTimes` instead.
 */
export async function fileAttributes(stats: BigIntStats, exactTimes: ExactTimes): Promise<FileAttributes> {
  const { mtimeNs, atimeNs, ctimeNs } = stats;
  const isExact = [mtimeNs, atimeNs, ctimeNs].every((ns) => ns > -EXACT_LIMIT_NS && ns < EXACT_LIMIT_NS);
  const times = isExact ? undefined : await exactTimes();
  if (typeof times === "number") throw failureOf(times, "stat");
  const timeNs = (index: number, ns: bigint): bigint =>
    times === undefined ? ns : times.readBigInt64LE(16 * index) * NS_PER_SECOND + times.readBigInt64LE(16 * index + 8);
  const mode = Number(stats.mode);
  return {
    type: typeOfMode(mode),
    // Node returns size, inode and link count as signed numbers, although they are unsigned in stat(2).
    sizeBytes: BigInt.asUintN(64, stats.size),
    inode: BigInt.asUintN(64, stats.ino),
    links: BigInt.asUintN(64, stats.nlink),
    mode: mode & 0o7777,
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    modifiedNs: timeNs(0, mtimeNs),
    accessedNs: timeNs(1, atimeNs),
    changedNs: timeNs(2, ctimeNs),
    hasHoles: stats.blocks * BLOCK_BYTES < stats.size,
  };
}

const closeDescriptor = promisify(close);
const readDescriptor = promisify(read);
const statDescriptor: (fd: number, options: { bigint: true }) => Promise<BigIntStats> = promisify(fstat);
const syncDescriptor = promisify(fsync);
/** Largest off_t. Node throws if a read could go beyond it. */
const MAX_OFFSET_BYTES = 2n ** 63n - 1n;

/** Opens a path, anywhere or below a directory. `flags` are those of open(2). Throws FileSystemError. */
export type OpenPath = (step: FileStep, path: Uint8Array, flags: number) => Promise<Descriptor>;

/** Opens a path relative to a directory with openat2(2), which gets `flags` and `resolve`. Throws FileSystemError. */
export async function openIn(
  work: FileWork,
  how: Work<Descriptor>,
  directory: number,
  path: Uint8Array,
  flags: number,
  { mode = 0, resolve = 0 }: { readonly mode?: number; readonly resolve?: number } = {},
): Promise<Descriptor> {
  return openedBy(work, how, (addon) => addon.openIn(directory, path, flags, mode, resolve));
}

/** Runs an addon call that opens a descriptor. Throws FileSystemError. */
export async function openedBy(
  work: FileWork,
  how: Work<Descriptor>,
  open: (addon: Addon) => Promise<number>,
): Promise<Descriptor> {
  const late = (fd: number): void => {
    if (fd < 0) return;
    const opened = new Descriptor(fd, work);
    how.onLateResult?.(opened);
    void opened[Symbol.asyncDispose]();
  };
  return new Descriptor(await work.native({ ...how, onLateResult: late }, open), work);
}

/** An addon call on the descriptor. It resolves with a negated errno if it fails. */
export type NativeJob<Value> = (addon: Addon, fd: number) => Promise<Value>;

/** An open file or directory. Dispose of it once; it is then closed as soon as no operation uses it. */
export class Descriptor implements AsyncDisposable, Holdable {
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
    return this.#run(step, async () =>
      fileAttributes(await statDescriptor(this.fd, { bigint: true }), () =>
        this.#work.addon.timesOf(this.fd, NO_PATH, AT_EMPTY_PATH),
      ),
    );
  }

  /** Reads at the offset, or at the current file position. Returns 0 beyond the largest possible offset. */
  async read(target: Uint8Array, offsetBytes: bigint | undefined): Promise<number> {
    if (offsetBytes !== undefined && offsetBytes > MAX_OFFSET_BYTES - BigInt(target.length)) return 0;
    const { bytesRead } = await this.#run("read", () =>
      readDescriptor(this.fd, target, 0, target.length, offsetBytes ?? null),
    );
    return bytesRead;
  }

  /** Reads only data that is in the page cache, without a thread (see the addon). */
  readCached(target: Uint8Array, position: number): number {
    return this.#work.addon.readCached(this.fd, target, position);
  }

  /**
   * Runs an addon call on this descriptor. The descriptors in `others` also stay open during the call. Throws
   * FileSystemError.
   */
  async native(step: FileStep, job: NativeJob<number>, others: readonly Holdable[] = []): Promise<void> {
    await this.#work.native({ step, on: [this, ...others] }, (addon) => job(addon, this.fd));
  }

  /**
   * Runs an addon call that resolves with bytes or, if it fails, with a negated errno. Such an errno is thrown as a
   * FileSystemError.
   *
   * @param mount the mount on which the call works, unless it is the mount of the descriptor
   */
  async nativeBytes(
    step: FileStep,
    job: NativeJob<Buffer | number>,
    mount?: Mount,
    others: readonly Holdable[] = [],
  ): Promise<Buffer> {
    const on = [this, ...others];
    const result = await this.#work.step({ step, on, mount }, () => job(this.#work.addon, this.fd));
    if (typeof result === "number") throw failureOf(result, step);
    return result;
  }

  /** Syncs the file to disk. Aborting the signal has no effect once the sync has started. */
  async sync(step: FileStep, signal?: AbortSignal): Promise<void> {
    await this.#work.step({ step, on: [this], signal }, () => syncDescriptor(this.fd));
  }

  /**
   * Call it when an operation has closed the descriptor itself. It is then not closed again, because its number may
   * already belong to another file.
   */
  wasClosed(): void {
    this.#wasClosed = true;
  }

  /** Closes the descriptor as soon as no operation uses it. Never rejects. */
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
