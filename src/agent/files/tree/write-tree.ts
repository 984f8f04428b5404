import { type Errno, FileSystemError, frameOrder } from "../../domain/index.ts";
import type { FileOwner, FilePath } from "../attributes.ts";
import { fileFailure } from "../failure.ts";
import { pathText } from "../location.ts";
import { folderOf } from "../paths/names.ts";
import type { NewFile } from "../transfer/new-file.ts";
import { ENTRY, NO_SYMLINKS, OVERWRITE, packEntries, type SmallEntry, SYNC } from "./batch.ts";
import { checkItem, Failures, type LeftEntry, notSparse, type TreeItem, tooLong, tooShort } from "./item.ts";
import type { MountBelow, MountsBelow } from "./mounts-below.ts";
import type { OpenFolder } from "./open-folder.ts";

/** Of folders' attributes that wait for their content. */
const LATER_LIMIT_BYTES = 4 * 1024 * 1024;
/** Of one of them in memory, but for its path. */
const LATER_ENTRY_BYTES = 256;
const FILE_MODE = 0o644;
const FOLDER_MODE = 0o755;
const SPECIAL_BITS = 0o7000;
const NONE = new Uint8Array(0);

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
  readonly owner: FileOwner;
  /** Undefined: it could not be made, and its bytes are dropped. */
  readonly file: NewFile | undefined;
  leftBytes: bigint;
}

/** Writes items below a folder. Call one method at a time; dispose of it. */
export class TreeWriter implements AsyncDisposable {
  readonly #folder: OpenFolder;
  readonly #options: TreeOptions;
  readonly #owner: FileOwner;
  readonly #signal: AbortSignal;
  readonly #flags: number;
  readonly #mounts: MountsBelow;
  readonly #temporary: Uint8Array;
  /** File systems that are synced at the end, each with a folder in it. */
  readonly #synced: Map<string, OpenFolder>;
  /** Small entries that wait for their hand-over to a thread. */
  #batch: SmallEntry[] = [];
  /** Modes and times of folders, which their content would change again. */
  #later: SmallEntry[] = [];
  #laterBytes = 0;
  #large: LargeFile | undefined;
  #items = 0n;
  #bytes = 0n;
  readonly #failures = new Failures();

  /** `owner`: of what names none. `temporary`: a name that nobody else uses. */
  constructor(folder: OpenFolder, options: TreeOptions, owner: FileOwner, temporary: Uint8Array, signal: AbortSignal) {
    this.#folder = folder;
    this.#options = options;
    this.#owner = owner;
    this.#mounts = folder.findMounts();
    this.#synced = new Map([[folder.fileSystem ?? "", folder]]);
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

  /** Takes the next items. Resolves when nothing uses their memory any more. Throws AgentError. */
  async take(items: readonly TreeItem[]): Promise<void> {
    for (const item of items) checkItem(item);
    for (const item of items) {
      await this.#endLarge();
      const isWhole =
        item.type !== "regular" || item.linkTarget.length > 0 || BigInt(item.data.length) === item.sizeBytes;
      if (isWhole) this.#batch.push(this.#entryOf(item));
      else await this.#beginLarge(item);
    }
    await this.#flush();
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

  /** Sets what had to wait, and syncs. Throws AgentError where the last file lacks bytes. */
  async finish(): Promise<TreeProgress> {
    await this.#endLarge();
    await this.#setLater();
    if (this.#options.syncs) for (const folder of this.#synced.values()) await folder.syncAll(this.#signal);
    return this.progress;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#large?.file?.dispose();
    this.#large = undefined;
    for (const folder of this.#synced.values()) if (folder !== this.#folder) await folder[Symbol.asyncDispose]();
  }

  /**
   * A folder of the file system to be written to, which is synced at the end. Opened before that: syncfs(2) tells the
   * errors from then on. The tree's own where there is none: what is written elsewhere is synced at once.
   */
  async #syncedWith(below: MountBelow | undefined): Promise<OpenFolder> {
    if (below === undefined || !this.#options.syncs) return this.#folder;
    const known = this.#synced.get(below.mount.fileSystem);
    if (known !== undefined) return known;
    try {
      const opened = await this.#folder.enter(below.path, true);
      if (opened.fileSystem === below.mount.fileSystem) {
        this.#synced.set(opened.fileSystem, opened);
        return opened;
      }
      await opened[Symbol.asyncDispose]();
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
    }
    return this.#folder;
  }

  #entryOf(item: TreeItem): SmallEntry {
    const { path, type, data, linkTarget, modifiedNs } = item;
    const owner = {
      uid: item.uid ?? this.#owner.uid,
      gid: item.gid ?? this.#owner.gid,
      hasGroup: item.gid !== undefined,
    };
    const mode = this.#modeOf(item);
    if (type === "directory") return { path, type: ENTRY.folder, mode, ...owner, modifiedNs, content: NONE };
    if (type === "symlink") return { path, type: ENTRY.symlink, mode, ...owner, modifiedNs, content: linkTarget };
    if (linkTarget.length > 0) return { path, type: ENTRY.hardLink, mode, ...owner, modifiedNs, content: linkTarget };
    return { path, type: ENTRY.file, mode, ...owner, modifiedNs, content: data };
  }

  #modeOf({ type, mode = type === "directory" ? FOLDER_MODE : FILE_MODE }: TreeItem): number {
    return this.#options.specialBits ? mode : mode & ~SPECIAL_BITS;
  }

  /** Hands the batch over, again for what the thread did not get to in its time. */
  async #flush(): Promise<void> {
    const batch = this.#batch;
    this.#batch = [];
    await this.#put(batch);
    if (this.#laterBytes > LATER_LIMIT_BYTES) await this.#setLater();
  }

  async #put(entries: readonly SmallEntry[]): Promise<void> {
    for (let rest = entries; rest.length > 0;) {
      this.#signal.throwIfAborted();
      const { below, entries: next } = this.#mounts.first(rest, ({ path }) => path);
      const putting = this.#putEach(next, below);
      // One that does not answer is not the tree's end.
      const errors = await putting.catch((error: unknown) => {
        if (below === undefined || !(error instanceof FileSystemError)) throw error;
        return next.map(() => error.errno);
      });
      for (const [index, errno] of errors.entries()) {
        const entry = rest[index];
        if (entry === undefined) break;
        if (errno !== undefined) this.#fail(entry.path, errno);
        else if (entry.type === ENTRY.file) this.#bytes += BigInt(entry.content.length);
        else if (entry.type === ENTRY.folder) {
          // A path is a view of a message, whose memory is used again.
          this.#later.push({ ...entry, type: ENTRY.attributes, path: Uint8Array.from(entry.path) });
          this.#laterBytes += entry.path.length + LATER_ENTRY_BYTES;
        }
        if (entry.type !== ENTRY.attributes) this.#items += 1n;
      }
      rest = rest.slice(errors.length);
    }
  }

  async #putEach(
    entries: readonly SmallEntry[],
    below: MountBelow | undefined,
  ): Promise<readonly (Errno | undefined)[]> {
    const synced = await this.#syncedWith(below);
    return this.#folder.putEach(packEntries(entries), this.#flags, this.#temporary, below?.mount, synced);
  }

  /** The deepest first: a folder's mode may close it. */
  async #setLater(): Promise<void> {
    const later = this.#later.toReversed();
    this.#later = [];
    this.#laterBytes = 0;
    for (let at = 0; at < later.length; at += 1_024) await this.#put(later.slice(at, at + 1_024));
  }

  async #beginLarge(item: TreeItem): Promise<void> {
    await this.#flush();
    const owner = { uid: item.uid ?? this.#owner.uid, gid: item.gid ?? this.#owner.gid };
    // The item is a view of a message.
    const own = { ...item, path: Uint8Array.from(item.path), data: NONE };
    let file: NewFile | undefined;
    try {
      file = await this.#create(own);
    } catch (error) {
      this.#failBy(own.path, error);
      this.#items += 1n;
    }
    this.#large = { item: own, owner, file, leftBytes: item.sizeBytes };
    const { data } = item;
    if (data.length > 0) await this.#append(this.#large, BigInt(data.length), (made) => made.write([data]));
  }

  async #create(item: TreeItem): Promise<NewFile> {
    const folder = folderOf(item.path);
    const options = { sparse: item.sparse, sha256: false };
    const below = this.#mounts.of(folder);
    await this.#syncedWith(below);
    const create = (): Promise<NewFile> =>
      this.#folder.createIn(folder, options, this.#options.followsNone, below?.mount);
    try {
      return await create();
    } catch (error) {
      if (!(error instanceof FileSystemError) || error.errno !== "ENOENT") throw error;
      const above = this.#entryOf({
        ...item,
        path: folder,
        type: "directory",
        mode: FOLDER_MODE,
        modifiedNs: undefined,
      });
      // What goes wrong here is the file's failure.
      await this.#putEach([above], below);
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
    const { item, file, owner, leftBytes } = large;
    if (leftBytes > 0n) throw tooShort(item, leftBytes);
    this.#large = undefined;
    if (file === undefined) return;
    try {
      await file.setAttributes(owner, this.#modeOf(item));
      if (item.modifiedNs !== undefined) await file.setModified(item.modifiedNs);
      this.#signal.throwIfAborted();
      const isElsewhere = this.#mounts.of(item.path) !== undefined && !this.#synced.has(file.fileSystem ?? "");
      const syncs = this.#options.syncs && isElsewhere;
      if (syncs) await file.sync(this.#signal);
      await file.place(item.path, !this.#options.overwrite, syncs);
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
    this.#fail(path, error.errno, error);
  }

  #fail(path: FilePath, errno: string, error: FileSystemError = new FileSystemError("create", errno)): void {
    if (this.#options.failFast) throw fileFailure(error, "write", pathText(path));
    this.#failures.add(path, errno);
  }
}
