import { FileSystemError, frameOrder } from "../../domain/index.ts";
import type { FileOwner, FilePath } from "../attributes.ts";
import { DeferredAttributes } from "../entries/deferred-attributes.ts";
import { Leftovers } from "../entries/leftovers.ts";
import { createFile, type NewFile } from "../entries/new-file.ts";
import { ENTRY, type NewEntry, packEntry, Records } from "../entries/record.ts";
import { NO_SYMLINKS, OVERWRITE, putEach, SYNC } from "../entries/tree-entries.ts";
import type { OpenDirectory } from "../open/directory.ts";
import type { MountBelow, MountsBelow } from "../open/mounts-below.ts";
import { dirname, splitPath } from "../open/names.ts";
import { fileFailure } from "./failure.ts";
import { checkItem, Failures, type FailedEntry, notSparse, type TreeItem, tooLong, tooShort } from "./item.ts";
import { pathText } from "./location.ts";

/**
 * Largest number of new symbolic links that a call remembers. Paths of later items cannot go through these links. They
 * can go through further links, as through links that existed before the call.
 */
const LINKS_LIMIT = 65_536;
/** Upper bound for the size of a record without its path and content. */
const RECORD_BYTES = 64;
const SPECIAL_BITS = 0o7000;
const NONE = new Uint8Array(0);
/** Errnos that may mean that a directory of the path is missing. EXDEV occurs if the path has an absolute link. */
const MISSING: ReadonlySet<string> = new Set(["ENOENT", "EXDEV"]);

/** Options of a WriteTree call (message WriteTreeHeader). */
export interface TreeOptions {
  /** If true, no symbolic link below the root directory is followed. */
  readonly followsNone: boolean;
  readonly overwrite: boolean;
  readonly specialBits: boolean;
  readonly failFast: boolean;
  /** Whether to sync everything to disk before the result is sent. */
  readonly syncs: boolean;
}

/** Number of items and bytes that were written so far, and the failures. */
export interface TreeProgress {
  readonly items: bigint;
  readonly bytesWritten: bigint;
  readonly failed: bigint;
  readonly failures: readonly FailedEntry[];
}

/** A file whose content is still arriving. */
interface LargeFile {
  readonly item: TreeItem;
  /** Undefined if the file could not be created. The bytes that arrive for it are then ignored. */
  readonly file: NewFile | undefined;
  leftBytes: bigint;
}

/** Writes items below a directory. Call its methods one at a time, and dispose of it. */
export class TreeWriter implements AsyncDisposable {
  readonly #directory: OpenDirectory;
  readonly #options: TreeOptions;
  readonly #owner: FileOwner;
  readonly #signal: AbortSignal;
  readonly #flags: number;
  readonly #mounts: MountsBelow;
  readonly #temporary: Uint8Array;
  readonly #leftovers = new Leftovers();
  /** File systems to sync at the end. Each value is an open directory on the file system. */
  readonly #syncTargets: Map<string, OpenDirectory>;
  readonly #deferred: DeferredAttributes;
  /**
   * Paths of symbolic links that this call has created. An item for a directory never follows one of these links, but
   * may follow a link that existed before the call.
   */
  readonly #links = new Set<string>();
  #large: LargeFile | undefined;
  #items = 0n;
  #bytes = 0n;
  readonly #failures = new Failures(true);

  /** `owner` is the owner of items that name no owner. `temporary` is a unique name for temporary files. */
  constructor(
    directory: OpenDirectory,
    options: TreeOptions,
    owner: FileOwner,
    temporary: Uint8Array,
    signal: AbortSignal,
  ) {
    this.#directory = directory;
    this.#options = options;
    this.#owner = owner;
    this.#mounts = directory.findMounts();
    this.#syncTargets = new Map([[directory.fileSystem ?? "", directory]]);
    this.#deferred = new DeferredAttributes(directory);
    this.#temporary = temporary;
    this.#signal = signal;
    const { overwrite, followsNone, syncs } = options;
    this.#flags = (overwrite ? OVERWRITE : 0) | (followsNone ? NO_SYMLINKS : 0) | (syncs ? SYNC : 0);
  }

  get progress(): TreeProgress {
    return {
      items: this.#items,
      bytesWritten: this.#bytes,
      failed: this.#failures.count,
      failures: this.#failures.first,
    };
  }

  /** Returns the items that failed since the last call. */
  takeFailures(): readonly FailedEntry[] {
    return this.#failures.takeUnreported();
  }

  /** Writes the next items. Resolves when the memory of the items is no longer used. Throws AgentError. */
  async take(items: readonly TreeItem[]): Promise<void> {
    for (const item of items) checkItem(item);
    let batch = new Records(likelyBytes(items));
    for (const item of items) {
      await this.#endLarge();
      const isWhole =
        item.type !== "regular" || item.linkTarget.length > 0 || BigInt(item.data.length) === item.sizeBytes;
      if (isWhole) batch.add(this.#entryOf(item));
      else {
        await this.#put(batch);
        batch = new Records();
        await this.#beginLarge(item);
      }
    }
    await this.#put(batch);
    if (!(await this.#deferred.spill())) await this.#setDeferred();
  }

  /**
   * Appends bytes to the large file that is being written. Resolves when the memory of the bytes is no longer used.
   * Throws AgentError.
   */
  async data(bytes: Uint8Array): Promise<void> {
    const large = this.#large;
    if (large === undefined) throw frameOrder("unexpected data message: no item is waiting for content");
    if (BigInt(bytes.length) > large.leftBytes) throw tooLong(large.item);
    await this.#append(large, BigInt(bytes.length), (file) => file.write([bytes]));
  }

  /** Appends a hole to the large file that is being written. Throws AgentError. */
  async hole(bytes: bigint): Promise<void> {
    const large = this.#large;
    if (large === undefined) throw frameOrder("unexpected hole message: no item is waiting for content");
    if (bytes > large.leftBytes) throw tooLong(large.item);
    if (!large.item.sparse) throw notSparse(large.item);
    await this.#append(large, bytes, (file) => file.skip(Number(bytes)));
  }

  /**
   * Handles the client's message that it cannot send the rest of the current file. Removes what was written of this
   * file. Throws AgentError if no file is being written.
   */
  async itemFailed(): Promise<void> {
    const large = this.#large;
    if (large === undefined) throw frameOrder("unexpected item_failure message: no item is waiting for content");
    this.#large = undefined;
    if (large.file === undefined) return;
    await large.file.dispose();
    this.#items += 1n;
  }

  /**
   * Sets the deferred attributes and syncs. Throws AgentError if the last file is incomplete.
   *
   * @param onProgress called before each step that may be slow
   */
  async finish(onProgress: () => Promise<void>): Promise<TreeProgress> {
    await this.#endLarge();
    await this.#setDeferred(onProgress);
    if (this.#options.syncs) for (const directory of this.#syncTargets.values()) await directory.syncAll(this.#signal);
    return this.progress;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#large?.file?.dispose();
    this.#large = undefined;
    await this.#deferred[Symbol.asyncDispose]();
    for (const directory of this.#syncTargets.values())
      if (directory !== this.#directory) await directory[Symbol.asyncDispose]();
  }

  /**
   * Returns an open directory on the mount `below`. At the end, syncfs(2) is called on this directory, to sync the
   * entries on the mount. The directory is opened before the entries are written, because syncfs(2) only reports errors
   * that occur after the open.
   *
   * Returns the root directory of the tree if `below` is undefined or cannot be opened. Files on a mount that cannot be
   * opened are synced one by one.
   */
  async #syncTarget(below: MountBelow | undefined): Promise<OpenDirectory> {
    if (below === undefined || !this.#options.syncs) return this.#directory;
    const known = this.#syncTargets.get(below.mount.fileSystem);
    if (known !== undefined) return known;
    try {
      const opened = await this.#directory.enter(below.path, true);
      if (opened.fileSystem === below.mount.fileSystem) {
        this.#syncTargets.set(opened.fileSystem, opened);
        return opened;
      }
      await opened[Symbol.asyncDispose]();
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
    }
    return this.#directory;
  }

  #entryOf(item: TreeItem): NewEntry {
    const { path, type, linkTarget } = item;
    const entry = { path, ...this.#attributesOf(item) };
    if (type === "directory") return { ...entry, type: ENTRY.directory, followsLink: !this.#isOwnLink(path) };
    if (type === "symlink") this.#rememberLink(path);
    if (type === "symlink") return { ...entry, type: ENTRY.symlink, content: linkTarget };
    if (linkTarget.length > 0) return { ...entry, type: ENTRY.hardLink, content: linkTarget };
    return { ...entry, type: ENTRY.file, content: item.data };
  }

  #attributesOf({ mode, uid, gid, modifiedNs }: TreeItem): Omit<NewEntry, "path" | "type"> {
    const { specialBits } = this.#options;
    const kept = specialBits || mode === undefined ? mode : mode & ~SPECIAL_BITS;
    return { mode: kept, uid, gid, owner: this.#owner, hasPlainMode: !specialBits, modifiedNs };
  }

  #rememberLink(path: FilePath): void {
    if (this.#links.size < LINKS_LIMIT) this.#links.add(Buffer.from(path).toString("latin1"));
  }

  #isOwnLink(path: FilePath): boolean {
    return this.#links.size > 0 && this.#links.has(Buffer.from(path).toString("latin1"));
  }

  /** Creates the entries. Each step creates as many as possible in one time slice of a thread. */
  async #put(records: Records): Promise<void> {
    const pathAt = (index: number): FilePath => records.path(index);
    for (let from = 0; from < records.count;) {
      this.#signal.throwIfAborted();
      const { below, end } = this.#mounts.first(from, records.count, pathAt);
      const putting = this.#putEach(records.slice(from, end), below);
      // If a mount does not respond, only its entries fail, not the whole tree.
      const errors = await putting.catch((error: unknown) => {
        if (below === undefined || !(error instanceof FileSystemError)) throw error;
        return Array.from({ length: end - from }, () => error);
      });
      if (errors.length === 0) throw new Error("the native addon processed none of the entries that it was given");
      for (const error of errors) this.#finished(records, from++, error);
    }
  }

  #finished(records: Records, index: number, error: FileSystemError | undefined): void {
    const type = records.type(index);
    if (error !== undefined) this.#fail(records.path(index), error);
    else if (type === ENTRY.file) this.#bytes += BigInt(records.dataBytes(index));
    else if (type === ENTRY.directory) this.#deferred.add(records, index);
    if (type !== ENTRY.attributes) this.#items += 1n;
  }

  async #putEach(records: Buffer, below: MountBelow | undefined): Promise<readonly (FileSystemError | undefined)[]> {
    const target = await this.#syncTarget(below);
    return putEach(this.#directory, records, this.#flags, this.#temporary, below?.mount, target);
  }

  async #setDeferred(onProgress?: () => Promise<void>): Promise<void> {
    for await (const records of this.#deferred.takeAll()) {
      await this.#put(records);
      await onProgress?.();
    }
  }

  async #beginLarge(item: TreeItem): Promise<void> {
    // Copies the path, because the item is a view into a message whose memory is reused.
    const own = { ...item, path: Uint8Array.from(item.path), data: NONE };
    let file: NewFile | undefined;
    try {
      file = await this.#create(own);
    } catch (error) {
      this.#failBy(own.path, error);
      this.#items += 1n;
    }
    this.#large = { item: own, file, leftBytes: item.sizeBytes };
    const { data } = item;
    if (data.length > 0) await this.#append(this.#large, BigInt(data.length), (made) => made.write([data]));
  }

  async #create(item: TreeItem): Promise<NewFile> {
    const path = dirname(item.path);
    const below = this.#mounts.of(path);
    await this.#syncTarget(below);
    const create = async (): Promise<NewFile> => {
      const directory = await this.#directory.openBeneath("create", path, this.#options.followsNone, below?.mount);
      return createFile(directory, this.#leftovers, { sparse: item.sparse, sha256: false });
    };
    try {
      return await create();
    } catch (error) {
      if (!(error instanceof FileSystemError) || !MISSING.has(error.errno)) throw error;
      const { uid, gid } = item;
      const above = packEntry({ path, type: ENTRY.directory, uid, gid, owner: this.#owner, followsLink: true });
      const [failure] = await this.#putEach(above, below);
      if (failure !== undefined) throw error.errno === "EXDEV" ? error : failure;
      return create();
    }
  }

  async #append(large: LargeFile, bytes: bigint, append: (file: NewFile) => Promise<void>): Promise<void> {
    large.leftBytes -= bytes;
    this.#signal.throwIfAborted();
    try {
      if (large.file !== undefined) await append(large.file);
    } catch (error) {
      await large.file?.dispose();
      this.#large = { ...large, file: undefined };
      this.#failBy(large.item.path, error);
      this.#items += 1n;
    }
    if (large.leftBytes === 0n) await this.#endLarge();
  }

  /**
   * Finishes the large file that is being written, which then gets its name. Throws if bytes of its content are
   * missing.
   */
  async #endLarge(): Promise<void> {
    const large = this.#large;
    if (large === undefined) return;
    const { item, file, leftBytes } = large;
    if (leftBytes > 0n) throw tooShort(item, leftBytes);
    this.#large = undefined;
    if (file === undefined) return;
    try {
      this.#signal.throwIfAborted();
      const isOnOtherFileSystem =
        this.#mounts.of(item.path) !== undefined && !this.#syncTargets.has(file.fileSystem ?? "");
      const { name } = splitPath(item.path);
      const commit = {
        exclusive: !this.#options.overwrite,
        syncs: this.#options.syncs && isOnOtherFileSystem,
        signal: this.#signal,
      };
      await file.commit({ path: name, ...this.#attributesOf(item), sizeBytes: item.sizeBytes }, commit);
      this.#bytes += item.sizeBytes;
    } catch (error) {
      this.#failBy(item.path, error);
    } finally {
      await file.dispose();
    }
    this.#items += 1n;
  }

  #failBy(path: FilePath, error: unknown): void {
    if (!(error instanceof FileSystemError)) throw error;
    this.#fail(path, error);
  }

  #fail(path: FilePath, error: FileSystemError): void {
    if (this.#options.failFast) throw fileFailure(error, "write", pathText(path));
    this.#failures.add(path, error.errno);
  }
}

/** Estimates the memory for the records of some items. */
function likelyBytes(items: readonly TreeItem[]): number {
  let bytes = 0;
  for (const { path, data, linkTarget } of items) bytes += RECORD_BYTES + path.length + data.length + linkTarget.length;
  return bytes;
}
