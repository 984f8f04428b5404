import { type BufferPool, type Clock, FileSystemError } from "../../domain/index.ts";
import type { FileAttributes, FilePath } from "../attributes.ts";
import { readChunks, type ReadOutput } from "./read.ts";
import type { RegularFile } from "../open/regular-file.ts";
import { readEach } from "../entries/tree-entries.ts";
import { Failures, type FailedEntry, MAX_SIZE_BYTES, type TreeItem } from "./item.ts";
import { type ListedEntry, listTree } from "./list.ts";
import type { MountsBelow } from "../open/mounts-below.ts";
import type { ListedDirectory } from "../entries/listed-directory.ts";
import type { OpenDirectory } from "../open/directory.ts";

/** Files up to this size are read in batches; larger ones are streamed. */
const SMALL_BYTES = 64 * 1024;
/** Number of content bytes in one batch, which becomes one message. */
const BATCH_BYTES = 256 * 1024;
/** Largest number of hard-linked files whose names are remembered. Each name of a further file is sent as a copy. */
const LINKS_LIMIT = 65_536;
/** Depth limit that no path reaches, so that all levels are listed. */
const ALL_LEVELS = 2 ** 31;
/**
 * Limit for the content of a file that reports size 0. Such a file (in /proc) may still have content, and the content
 * may never end.
 */
const MEASURED_LIMIT_BYTES = 32n * 1024n * 1024n;
const NONE = new Uint8Array(0);
const NUL: Uint8Array = Uint8Array.of(0);

/**
 * Receives what is read from a directory tree: items, and the contents of files. Each promise resolves when the output
 * can take more. `bytes` are valid until `release`.
 */
export interface TreeOutput {
  items(items: readonly TreeItem[]): Promise<void>;
  data(bytes: Uint8Array, release: () => void): Promise<void>;
  /**
   * Receives failures as they happen. If undefined, failures are only in the result. If the file whose content is being
   * sent fails, the rest of this content is not sent.
   */
  readonly failures: ((entries: readonly FailedEntry[]) => Promise<void>) | undefined;
  /** Receives the size of each hole. If undefined, the zeros of holes are sent as data. */
  readonly hole: ((bytes: bigint) => Promise<void>) | undefined;
}

export interface ReadTreeParts {
  /** The directory for the listing. The listing closes it. */
  readonly top: ListedDirectory;
  /** A second descriptor of the same directory, for reading the files. */
  readonly root: OpenDirectory;
  readonly output: TreeOutput;
  readonly crossMounts: boolean;
  /**
   * Whether hard links are kept although `crossMounts` is set. If false, each name of a file is sent as a copy. Without
   * `crossMounts`, hard links are always kept.
   */
  readonly hardLinks: boolean;
  readonly buffers: BufferPool;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly signal: AbortSignal;
}

export interface TreeRead {
  readonly items: bigint;
  readonly failed: bigint;
  readonly failures: readonly FailedEntry[];
}

/** Reads everything below a directory. Throws FileSystemError, or the signal's reason. */
export async function readTree(parts: ReadTreeParts): Promise<TreeRead> {
  const reader = new TreeReader(parts);
  const { top, crossMounts, clock, signal } = parts;
  const request = {
    path: NONE,
    beneath: NONE,
    noSymlinks: true,
    depth: ALL_LEVELS,
    maxEntries: 0n,
    crossMounts,
  };
  await listTree({ top, request, clock, signal, output: (entries) => reader.take(entries) });
  await reader.sent();
  return reader.result;
}

/** A small file that is read together with others. */
type SmallFile = readonly [path: FilePath, attributes: FileAttributes];

class TreeReader {
  readonly #parts: ReadTreeParts;
  readonly #mounts: MountsBelow;
  /**
   * For each file that has several hard links, the name under which it was sent first. Each further name is sent as a
   * hard link to that name.
   */
  readonly #names = new Map<string, FilePath>();
  /** Items for the next message. When the files in `#small` have been read, their items are added here. */
  #ready: TreeItem[] = [];
  #small: SmallFile[] = [];
  #items = 0n;
  #sent = Promise.resolve();
  readonly #failures: Failures;

  constructor(parts: ReadTreeParts) {
    this.#parts = parts;
    this.#failures = new Failures(parts.output.failures !== undefined);
    this.#mounts = parts.root.findMounts();
  }

  get result(): TreeRead {
    return { items: this.#items, failed: this.#failures.count, failures: this.#failures.first };
  }

  /** Resolves when the output has taken everything. */
  sent(): Promise<void> {
    return this.#sent;
  }

  async take(entries: readonly ListedEntry[]): Promise<void> {
    for (const entry of entries) await this.#takeEntry(entry);
    await this.#readSmall();
    await this.#send();
    await this.#reportFailures();
  }

  async #takeEntry({ name, attributes, linkTarget, errno, isMountPoint }: ListedEntry): Promise<void> {
    if (attributes === undefined || errno !== undefined) {
      // Without `crossMounts`, skipping a mount point is not a failure.
      if (!isMountPoint || this.#parts.crossMounts) this.#failures.add(name, errno ?? "ENOENT");
      if (attributes === undefined) return;
    }
    const { type, sizeBytes } = attributes;
    if (type === "directory") this.#ready.push(itemOf(name, attributes, NONE, 0n));
    else if (type === "symlink")
      this.#ready.push({ ...itemOf(name, attributes, NONE, 0n), linkTarget: linkTarget ?? NONE });
    else if (type !== "regular") this.#failures.add(name, "EOPNOTSUPP");
    else if (await this.#takeHardLink(name, attributes)) return;
    else if (sizeBytes <= SMALL_BYTES) this.#small.push([name, attributes]);
    else {
      await this.#readSmall();
      await this.#send();
      await this.#readLarge(name, attributes);
    }
  }

  /** Sends a hard link and returns true if the file was already sent under another name. */
  async #takeHardLink(name: FilePath, attributes: FileAttributes): Promise<boolean> {
    // The file has only one name, or each of its names is sent as a copy.
    if (!this.#isShared(attributes)) return false;
    // If another name of this file waits to be read, it is read now: only after a successful read may `name` become a
    // link to it.
    if (this.#small.some(([, waiting]) => waiting.inode === attributes.inode)) await this.#readSmall();
    const first = this.#names.get(this.#fileOf(name, attributes));
    if (first === undefined) return false;
    await this.#readSmall();
    this.#ready.push({ ...itemOf(name, attributes, NONE, 0n), linkTarget: first });
    return true;
  }

  #isShared({ links }: FileAttributes): boolean {
    return links > 1n && (this.#parts.hardLinks || !this.#parts.crossMounts);
  }

  /**
   * Key of a file, the same for all its hard links. It includes the mount, because an inode is unique only in its file
   * system.
   */
  #fileOf(path: FilePath, { inode }: FileAttributes): string {
    return `${inode} ${Buffer.from(this.#mounts.of(path)?.path ?? NONE).toString("latin1")}`;
  }

  /** Remembers the name of a file that was sent completely. */
  #remember(path: FilePath, attributes: FileAttributes): void {
    if (this.#isShared(attributes) && this.#names.size < LINKS_LIMIT)
      this.#names.set(this.#fileOf(path, attributes), Uint8Array.from(path));
  }

  async #send(): Promise<void> {
    const items = this.#ready;
    this.#ready = [];
    this.#items += BigInt(items.length);
    if (items.length === 0) return;
    // The next items are read while these are sent.
    await this.#sent;
    this.#sent = this.#parts.output.items(items);
  }

  async #reportFailures(): Promise<void> {
    if (this.#failures.unreported === 0) return;
    await this.#sent;
    await this.#parts.output.failures?.(this.#failures.takeUnreported());
  }

  async #readSmall(): Promise<void> {
    for (let rest = this.#small; rest.length > 0;) {
      const { grown, done } = await this.#readBatch(rest);
      rest = rest.slice(done);
      await this.#send();
      for (const [path, attributes] of grown) await this.#readLarge(path, attributes);
    }
    this.#small = [];
  }

  async #readBatch(files: readonly SmallFile[]): Promise<{ readonly grown: readonly SmallFile[]; done: number }> {
    const { root, signal } = this.#parts;
    signal.throwIfAborted();
    const { below, end } = this.#mounts.first(0, files.length, (index) => files[index]?.[0] ?? NONE);
    const paths = Buffer.concat(files.slice(0, end).flatMap(([path]) => [path, NUL]));
    const grown: SmallFile[] = [];
    let done = 0;
    const roomBytes = BATCH_BYTES + SMALL_BYTES + 4;
    for (const read of await readEach(root, paths, SMALL_BYTES, roomBytes, below?.mount)) {
      const file = files[done++];
      if (file === undefined) break;
      const [path, attributes] = file;
      if (read === "EFBIG") grown.push(file);
      else if (typeof read === "string") this.#failures.add(path, read);
      else {
        this.#remember(path, attributes);
        this.#ready.push(itemOf(path, attributes, read, BigInt(read.length)));
      }
    }
    return { grown, done };
  }

  /** `listed` has the attributes that the listing reported. */
  async #readLarge(path: FilePath, listed: FileAttributes): Promise<void> {
    const { root, buffers } = this.#parts;
    try {
      const file = await root.openFile(path, this.#mounts.of(path)?.mount);
      if (file === undefined) throw new FileSystemError("open", "ESTALE");
      const leave = buffers.enter();
      try {
        // A file with reported size 0 may have content, as in /proc. Only reading the whole file shows its real size.
        const hasNoSize = listed.sizeBytes === 0n && file.attributes.sizeBytes === 0n;
        const sizeBytes = hasNoSize ? await this.#measure(path) : file.attributes.sizeBytes;
        if (sizeBytes > MAX_SIZE_BYTES) throw new FileSystemError("read", "EFBIG");
        await this.#sendLarge(path, file, sizeBytes);
      } finally {
        leave();
        await file.close();
      }
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      this.#failures.add(path, error.errno);
    }
    // If reading the file failed, the client must get the failure before the next item. Otherwise it would take the
    // incomplete file for a complete one.
    await this.#reportFailures();
  }

  async #sendLarge(path: FilePath, file: RegularFile, sizeBytes: bigint): Promise<void> {
    const { output } = this.#parts;
    const { attributes } = file;
    const { hasHoles = false } = attributes;
    await this.#sent;
    await output.items([{ ...itemOf(path, attributes, NONE, sizeBytes), sparse: hasHoles }]);
    this.#items += 1n;
    if (sizeBytes === 0n) return;
    const sentBytes = await this.#sendContent(file, sizeBytes);
    if (sentBytes < sizeBytes) throw new FileSystemError("read", "ESTALE");
    this.#remember(path, attributes);
  }

  /** Reads a file to its end to find its size. */
  async #measure(path: FilePath): Promise<bigint> {
    const { root, buffers, signal } = this.#parts;
    const file = await root.openFile(path, this.#mounts.of(path)?.mount);
    if (file === undefined) throw new FileSystemError("open", "ESTALE");
    let sizeBytes = 0n;
    try {
      const request = { offsetBytes: 0n, lengthBytes: MEASURED_LIMIT_BYTES };
      const output: ReadOutput = (bytes, _attributes, release) => {
        sizeBytes += BigInt(bytes.length);
        release();
      };
      await readChunks({ file, request, buffers, signal, output });
    } finally {
      await file.close();
    }
    if (sizeBytes >= MEASURED_LIMIT_BYTES) throw new FileSystemError("read", "EFBIG");
    return sizeBytes;
  }

  /** Returns the number of bytes sent, holes included. It is less than the size if the file was truncated meanwhile. */
  async #sendContent(file: RegularFile, lengthBytes: bigint): Promise<bigint> {
    const { buffers, output, signal } = this.#parts;
    let sentBytes = 0n;
    let sending = Promise.resolve();
    const sendHole = output.hole;
    const hole = async (bytes: bigint): Promise<void> => {
      sentBytes += bytes;
      await sendHole?.(bytes);
    };
    try {
      await readChunks({
        file,
        request: { offsetBytes: 0n, lengthBytes },
        buffers,
        signal,
        hole: sendHole && hole,
        output: (bytes, _attributes, release) => {
          sentBytes += BigInt(bytes.length);
          if (bytes.length === 0) release();
          else sending = output.data(bytes, release);
        },
      });
    } finally {
      await sending;
    }
    return sentBytes;
  }
}

function itemOf(path: FilePath, attributes: FileAttributes, data: Uint8Array, sizeBytes: bigint): TreeItem {
  const { type, mode, uid, gid, modifiedNs } = attributes;
  return { path, type, mode, uid, gid, modifiedNs, sizeBytes, data, linkTarget: NONE, sparse: false };
}
