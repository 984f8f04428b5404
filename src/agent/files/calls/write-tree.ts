import { FileSystemError, frameOrder } from "../../domain/index.ts";
import type { FileOwner, FilePath } from "../attributes.ts";
import { DeferredAttributes } from "../entries/deferred-attributes.ts";
import { Leftovers } from "../entries/leftovers.ts";
import { createFile, type NewFile } from "../entries/new-file.ts";
import { ENTRY, type NewEntry, packEntry, Records } from "../entries/record.ts";
import { NO_SYMLINKS, OVERWRITE, putEach, SYNC } from "../entries/tree-entries.ts";
import type { OpenFolder } from "../open/folder.ts";
import type { MountBelow, MountsBelow } from "../open/mounts-below.ts";
import { folderOf, splitPath } from "../open/names.ts";
import { fileFailure } from "./failure.ts";
import { checkItem, Failures, type LeftEntry, notSparse, type TreeItem, tooLong, tooShort } from "./item.ts";
import { pathText } from "./location.ts";

/** Links that are remembered. Further ones count as there before the tree. */
const LINKS_LIMIT = 65_536;
/** Bytes of a record beside its path and content, at most. */
const RECORD_BYTES = 64;
const SPECIAL_BITS = 0o7000;
const NONE = new Uint8Array(0);
/** Errnos of a directory that may be missing: beyond an absolute link it is looked up within the tree. */
const MISSING: ReadonlySet<string> = new Set(["ENOENT", "EXDEV"]);

/** How a tree is written (message WriteTreeHeader). */
export interface TreeOptions {
  /** No symbolic link is followed below the folder. */
  readonly followsNone: boolean;
  readonly overwrite: boolean;
  readonly specialBits: boolean;
  readonly failFast: boolean;
  /** Everything is on the disk before the result. */
  readonly syncs: boolean;
}

/** What is done so far. */
export interface TreeProgress {
  readonly items: bigint;
  readonly bytesWritten: bigint;
  readonly failed: bigint;
  readonly failures: readonly LeftEntry[];
}

/** A file whose content is still coming. */
interface LargeFile {
  readonly item: TreeItem;
  /** Undefined: it could not be made, and its bytes are dropped. */
  readonly file: NewFile | undefined;
  leftBytes: bigint;
}

/** Writes items below a directory. Call one method at a time; dispose of it. */
export class TreeWriter implements AsyncDisposable {
  readonly #folder: OpenFolder;
  readonly #options: TreeOptions;
  readonly #owner: FileOwner;
  readonly #signal: AbortSignal;
  readonly #flags: number;
  readonly #mounts: MountsBelow;
  readonly #temporary: Uint8Array;
  readonly #leftovers = new Leftovers();
  /** File systems that are synced at the end, each with a directory in it. */
  readonly #syncTargets: Map<string, OpenFolder>;
  readonly #deferred: DeferredAttributes;
  /** Links of this tree. Others were there before: one to a directory may stand for it. */
  readonly #links = new Set<string>();
  #large: LargeFile | undefined;
  #items = 0n;
  #bytes = 0n;
  readonly #failures = new Failures(true);

  /** `owner`: of what names none. `temporary`: a name that nobody else uses. */
  constructor(folder: OpenFolder, options: TreeOptions, owner: FileOwner, temporary: Uint8Array, signal: AbortSignal) {
    this.#folder = folder;
    this.#options = options;
    this.#owner = owner;
    this.#mounts = folder.findMounts();
    this.#syncTargets = new Map([[folder.fileSystem ?? "", folder]]);
    this.#deferred = new DeferredAttributes(folder);
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

  /** Items that failed since the last call. */
  takeFailures(): readonly LeftEntry[] {
    return this.#failures.takeUnreported();
  }

  /** Takes the next items. Resolves when nothing uses their memory any more. Throws AgentError. */
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
    if (!(await this.#deferred.makeRoom())) await this.#setDeferred();
  }

  /** Takes the next bytes of the last item. Resolves when nothing uses their memory any more. Throws AgentError. */
  async data(bytes: Uint8Array): Promise<void> {
    const large = this.#large;
    if (large === undefined) throw frameOrder("data without an item that lacks any");
    if (BigInt(bytes.length) > large.leftBytes) throw tooLong(large.item);
    await this.#append(large, BigInt(bytes.length), (file) => file.write([bytes]));
  }

  /** Takes a hole of the last item as its next bytes. Throws AgentError. */
  async hole(bytes: bigint): Promise<void> {
    const large = this.#large;
    if (large === undefined) throw frameOrder("hole without an item that lacks any bytes");
    if (bytes > large.leftBytes) throw tooLong(large.item);
    if (!large.item.sparse) throw notSparse(large.item);
    await this.#append(large, bytes, (file) => file.skip(Number(bytes)));
  }

  /** The rest of the last item does not come: what has come of it is dropped. Throws AgentError. */
  async itemFailed(): Promise<void> {
    const large = this.#large;
    if (large === undefined) throw frameOrder("item_failure without an item that lacks any bytes");
    this.#large = undefined;
    if (large.file === undefined) return;
    await large.file.dispose();
    this.#items += 1n;
  }

  /**
   * Sets what had to wait, and syncs. Throws AgentError where the last file lacks bytes.
   *
   * @param onProgress called before anything that may take long
   */
  async finish(onProgress: () => Promise<void>): Promise<TreeProgress> {
    await this.#endLarge();
    await this.#setDeferred(onProgress);
    if (this.#options.syncs) for (const folder of this.#syncTargets.values()) await folder.syncAll(this.#signal);
    return this.progress;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#large?.file?.dispose();
    this.#large = undefined;
    await this.#deferred[Symbol.asyncDispose]();
    for (const folder of this.#syncTargets.values()) if (folder !== this.#folder) await folder[Symbol.asyncDispose]();
  }

  /**
   * A directory of the file system to be written to, which is synced at the end. Opened before that: syncfs(2) reports
   * the errors since then. The tree's own where there is none: what is written elsewhere is synced at once.
   */
  async #syncTarget(below: MountBelow | undefined): Promise<OpenFolder> {
    if (below === undefined || !this.#options.syncs) return this.#folder;
    const known = this.#syncTargets.get(below.mount.fileSystem);
    if (known !== undefined) return known;
    try {
      const opened = await this.#folder.enter(below.path, true);
      if (opened.fileSystem === below.mount.fileSystem) {
        this.#syncTargets.set(opened.fileSystem, opened);
        return opened;
      }
      await opened[Symbol.asyncDispose]();
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
    }
    return this.#folder;
  }

  #entryOf(item: TreeItem): NewEntry {
    const { path, type, linkTarget } = item;
    const entry = { path, ...this.#attributesOf(item) };
    if (type === "directory") return { ...entry, type: ENTRY.folder, followsLink: !this.#isOwnLink(path) };
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

  /** Makes the entries, in steps of what a thread gets to in its time. */
  async #put(records: Records): Promise<void> {
    const pathAt = (index: number): FilePath => records.path(index);
    for (let from = 0; from < records.count;) {
      this.#signal.throwIfAborted();
      const { below, end } = this.#mounts.first(from, records.count, pathAt);
      const putting = this.#putEach(records.slice(from, end), below);
      // A mount that does not answer is not the tree's end.
      const errors = await putting.catch((error: unknown) => {
        if (below === undefined || !(error instanceof FileSystemError)) throw error;
        return Array.from({ length: end - from }, () => error);
      });
      if (errors.length === 0) throw new Error("the addon made no entry of a batch");
      for (const error of errors) this.#finished(records, from++, error);
    }
  }

  #finished(records: Records, index: number, error: FileSystemError | undefined): void {
    const type = records.type(index);
    if (error !== undefined) this.#fail(records.path(index), error);
    else if (type === ENTRY.file) this.#bytes += BigInt(records.dataBytes(index));
    else if (type === ENTRY.folder) this.#deferred.add(records, index);
    if (type !== ENTRY.attributes) this.#items += 1n;
  }

  async #putEach(records: Buffer, below: MountBelow | undefined): Promise<readonly (FileSystemError | undefined)[]> {
    const target = await this.#syncTarget(below);
    return putEach(this.#folder, records, this.#flags, this.#temporary, below?.mount, target);
  }

  async #setDeferred(onProgress?: () => Promise<void>): Promise<void> {
    for await (const records of this.#deferred.takeAll()) {
      await this.#put(records);
      await onProgress?.();
    }
  }

  async #beginLarge(item: TreeItem): Promise<void> {
    // The item is a view of a message.
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
    const path = folderOf(item.path);
    const below = this.#mounts.of(path);
    await this.#syncTarget(below);
    const create = async (): Promise<NewFile> => {
      const folder = await this.#folder.openBeneath("create", path, this.#options.followsNone, below?.mount);
      return createFile(folder, this.#leftovers, { sparse: item.sparse, sha256: false });
    };
    try {
      return await create();
    } catch (error) {
      if (!(error instanceof FileSystemError) || !MISSING.has(error.errno)) throw error;
      const { uid, gid } = item;
      const above = packEntry({ path, type: ENTRY.folder, uid, gid, owner: this.#owner, followsLink: true });
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

  /** Puts the large file in its place. Throws where bytes of it are missing. */
  async #endLarge(): Promise<void> {
    const large = this.#large;
    if (large === undefined) return;
    const { item, file, leftBytes } = large;
    if (leftBytes > 0n) throw tooShort(item, leftBytes);
    this.#large = undefined;
    if (file === undefined) return;
    try {
      this.#signal.throwIfAborted();
      const isElsewhere = this.#mounts.of(item.path) !== undefined && !this.#syncTargets.has(file.fileSystem ?? "");
      const { name } = splitPath(item.path);
      const commit = {
        exclusive: !this.#options.overwrite,
        syncs: this.#options.syncs && isElsewhere,
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

/** Memory for the records of items. */
function likelyBytes(items: readonly TreeItem[]): number {
  let bytes = 0;
  for (const { path, data, linkTarget } of items) bytes += RECORD_BYTES + path.length + data.length + linkTarget.length;
  return bytes;
}
