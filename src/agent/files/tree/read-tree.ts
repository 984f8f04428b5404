import { type BufferPool, type Clock, FileSystemError } from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";
import type { FileAttributes, FilePath } from "../attributes.ts";
import { readChunks } from "../transfer/read.ts";
import type { RegularFile } from "../transfer/regular-file.ts";
import { readResults } from "./batch.ts";
import { Failures, type LeftEntry, MAX_SIZE_BYTES, type TreeItem } from "./item.ts";
import { type ListedEntry, listTree } from "./list.ts";
import type { MountsBelow } from "./mounts-below.ts";
import type { OpenFolder } from "./open-folder.ts";

/** Largest file that is read in a batch; a larger one streams. */
const SMALL_BYTES = 64 * 1024;
/** Of a batch, and so of a message. */
const BATCH_BYTES = 256 * 1024;
/** Inodes with several names that are remembered: beyond that the other names are copies. */
const LINKS_LIMIT = 65_536;
/** Deeper than any path that is listed. */
const ALL_LEVELS = 2 ** 31;
const NONE = new Uint8Array(0);
const NUL: Uint8Array = Uint8Array.of(0);

/** What a walk hands on. Each promise resolves when more may come; bytes of `data` are valid until then. */
export interface TreeOutput {
  items(items: readonly TreeItem[]): Promise<void>;
  data(bytes: Uint8Array, release: () => void): Promise<void>;
  /** Undefined: their zeros come as data. */
  readonly hole: ((bytes: bigint) => Promise<void>) | undefined;
}

/** What a walk needs. */
export interface ReadTreeParts {
  /** To list it; the walk closes it. */
  readonly top: OpenFolder;
  /** The same folder, to read files in it. */
  readonly root: OpenFolder;
  readonly output: TreeOutput;
  readonly crossMounts: boolean;
  readonly buffers: BufferPool;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly signal: AbortSignal;
}

/** What was read. */
export interface TreeRead {
  readonly items: bigint;
  readonly failed: bigint;
  readonly failures: readonly LeftEntry[];
}

/** Reads all below a folder. Throws FileSystemError, or the signal's reason. */
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

class TreeReader {
  readonly #parts: ReadTreeParts;
  readonly #mounts: MountsBelow;
  /** First names of files that have several. */
  readonly #names = new Map<bigint, FilePath>();
  #items = 0n;
  #sent = Promise.resolve();
  readonly #failures = new Failures();

  constructor(parts: ReadTreeParts) {
    this.#parts = parts;
    this.#mounts = parts.root.findMounts();
  }

  get result(): TreeRead {
    return { items: this.#items, failed: this.#failures.count, failures: this.#failures.first };
  }

  /** Resolves when the output has taken all. */
  sent(): Promise<void> {
    return this.#sent;
  }

  async take(entries: readonly ListedEntry[]): Promise<void> {
    let ready: TreeItem[] = [];
    const send = async (): Promise<void> => {
      const items = ready;
      ready = [];
      this.#items += BigInt(items.length);
      if (items.length === 0) return;
      // The next are read while these are sent.
      await this.#sent;
      this.#sent = this.#parts.output.items(items);
    };
    let small: (readonly [path: FilePath, attributes: FileAttributes])[] = [];
    const readSmall = async (): Promise<void> => {
      for (let rest = small; rest.length > 0;) {
        const { items, grown, done } = await this.#readSmall(rest);
        rest = rest.slice(done);
        ready.push(...items);
        await send();
        for (const name of grown) await this.#readLarge(name, true);
      }
      small = [];
    };
    for (const { name, attributes, linkTarget, errno, isMountPoint } of entries) {
      if (attributes === undefined || errno !== undefined) {
        // Another file system is none of this tree's, unless it is asked for.
        if (!isMountPoint || this.#parts.crossMounts) this.#failures.add(name, errno ?? "ENOENT");
        if (attributes === undefined) continue;
      }
      // Inodes are of one file system.
      const isShared = attributes.links > 1n && attributes.type === "regular" && !this.#parts.crossMounts;
      const first = isShared ? this.#names.get(attributes.inode) : undefined;
      if (attributes.type === "directory") ready.push(itemOf(name, attributes, NONE, 0n));
      else if (attributes.type === "symlink")
        ready.push({ ...itemOf(name, attributes, NONE, 0n), linkTarget: linkTarget ?? NONE });
      else if (attributes.type !== "regular") this.#failures.add(name, "EOPNOTSUPP");
      else if (first !== undefined) {
        // Its first name goes out before it.
        await readSmall();
        ready.push({ ...itemOf(name, attributes, NONE, 0n), linkTarget: first });
      } else {
        if (isShared && this.#names.size < LINKS_LIMIT) this.#names.set(attributes.inode, Uint8Array.from(name));
        if (attributes.sizeBytes <= SMALL_BYTES) small.push([name, attributes]);
        else {
          await readSmall();
          await send();
          await this.#readLarge(name);
        }
      }
    }
    await readSmall();
    await send();
  }

  async #readSmall(
    files: readonly (readonly [path: FilePath, attributes: FileAttributes])[],
  ): Promise<{ readonly items: TreeItem[]; readonly grown: readonly FilePath[]; readonly done: number }> {
    const { root, signal } = this.#parts;
    signal.throwIfAborted();
    const { below, entries } = this.#mounts.first(files, ([path]) => path);
    const paths = Buffer.concat(entries.flatMap(([path]) => [path, NUL]));
    const items: TreeItem[] = [];
    const grown: FilePath[] = [];
    let done = 0;
    const roomBytes = BATCH_BYTES + SMALL_BYTES + 4;
    for (const read of readResults(await root.readEach(paths, SMALL_BYTES, roomBytes, below?.mount))) {
      const [path, attributes] = files[done++] ?? [];
      if (path === undefined || attributes === undefined) break;
      if (typeof read === "number" && errnoName(read) === "EFBIG") grown.push(path);
      else if (typeof read === "number") this.#failures.add(path, errnoName(read));
      else items.push(itemOf(path, attributes, read, BigInt(read.length)));
    }
    return { items, grown, done };
  }

  /** @param isFilled it has content: without a size (/proc) nothing tells how much */
  async #readLarge(path: FilePath, isFilled = false): Promise<void> {
    const { root, buffers, output } = this.#parts;
    try {
      const file = await root.openFile(path, this.#mounts.of(path)?.mount);
      if (file === undefined) {
        this.#failures.add(path, "ESTALE");
        return;
      }
      const leave = buffers.enter();
      try {
        if (isFilled && file.attributes.sizeBytes === 0n) throw new FileSystemError("read", "EFBIG");
        const { sizeBytes, hasHoles = false } = file.attributes;
        if (sizeBytes > MAX_SIZE_BYTES) throw new FileSystemError("read", "EFBIG");
        await output.items([{ ...itemOf(path, file.attributes, NONE, sizeBytes), sparse: hasHoles }]);
        this.#items += 1n;
        if (hasHoles && output.hole !== undefined) await this.#readSparse(path, file, output.hole);
        else await this.#readPart(path, file, 0n, sizeBytes);
      } finally {
        leave();
        await file.close();
      }
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      this.#failures.add(path, error.errno);
    }
  }

  /** Ends where the file does now, if it has shrunk. */
  async #readSparse(path: FilePath, file: RegularFile, hole: (bytes: bigint) => Promise<void>): Promise<void> {
    const { sizeBytes } = file.attributes;
    for (let at = 0n; at < sizeBytes;) {
      const { beginBytes, endBytes } = await file.nextData(at);
      const [begin, end] = [beginBytes, endBytes].map((place) => (place < sizeBytes ? place : sizeBytes)) as [
        bigint,
        bigint,
      ];
      if (begin > at) await hole(begin - at);
      if (end <= begin || (await this.#readPart(path, file, begin, end - begin)) < end - begin) return;
      at = end;
    }
  }

  async #readPart(path: FilePath, file: RegularFile, offsetBytes: bigint, lengthBytes: bigint): Promise<bigint> {
    const { buffers, output, signal } = this.#parts;
    let sentBytes = 0n;
    let sending = Promise.resolve();
    const request = { path, beneath: NONE, noSymlinks: true, offsetBytes, lengthBytes };
    await readChunks({
      file,
      request,
      buffers,
      signal,
      output: (bytes, _attributes, release) => {
        sentBytes += BigInt(bytes.length);
        if (bytes.length === 0) release();
        else sending = output.data(bytes, release);
      },
    });
    await sending;
    return sentBytes;
  }
}

function itemOf(path: FilePath, attributes: FileAttributes, data: Uint8Array, sizeBytes: bigint): TreeItem {
  const { type, mode, uid, gid, modifiedNs } = attributes;
  return { path, type, mode, uid, gid, modifiedNs, sizeBytes, data, linkTarget: NONE, sparse: false };
}
