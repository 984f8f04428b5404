import { type BigIntStats, constants, lstat, readlink, stat, type StatsFs, statfs } from "node:fs";
import { promisify } from "node:util";
import { type FileStep, FileSystemError, type FileSystemSpace, type Timers } from "../../domain/index.ts";
import { type Addon, RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS } from "../../native/index.ts";
import type { FileAttributes, FileOwner, FilePath, FileType } from "../attributes.ts";
import { PathEscapes } from "../failure.ts";
import { FileWork } from "../threads/work.ts";
import type { NewFileOptions } from "../transfer/file-writer.ts";
import { createFile, createSmallFile, Leftovers, type NewFile } from "../transfer/new-file.ts";
import { openRegular, type RegularFile } from "../transfer/regular-file.ts";
import type { OpenEntry } from "../tree/open-entry.ts";
import type { OpenFolder } from "../tree/open-folder.ts";
import { type Descriptor, fileAttributes, type OpenPath } from "./descriptor.ts";
import { Folder } from "./folder.ts";
import { splitPath } from "./names.ts";
import { checkOpenat2 } from "./openat2.ts";
import { O_PATH, Paths } from "./paths.ts";

const HERE = Buffer.from(".");
const statPath: (path: Buffer, options: { bigint: true }) => Promise<BigIntStats> = promisify(stat);
const statLink: (path: Buffer, options: { bigint: true }) => Promise<BigIntStats> = promisify(lstat);
const targetOfLink = promisify(readlink);
const statfsOf: (path: Buffer) => Promise<StatsFs> = promisify(statfs);

/** Path lookups in a tree. All throw FileSystemError. */
interface Lookups {
  readonly open: OpenPath;
  readonly stat: (step: FileStep, path: FilePath, noFollow: boolean) => Promise<FileAttributes>;
  readonly readLink: (path: FilePath) => Promise<Uint8Array>;
}

/** What all trees of a guest share. */
interface Shared {
  readonly work: FileWork;
  readonly leftovers: Leftovers;
}

/**
 * Files and folders by their paths. Changes go through the descriptor of the name's folder. Everything rejects with
 * FileSystemError and never blocks the event loop.
 */
export class FileTree {
  readonly #lookups: Lookups;
  readonly #shared: Shared;

  constructor(lookups: Lookups, shared: Shared) {
    this.#lookups = lookups;
    this.#shared = shared;
  }

  /** @param noFollow describe a symbolic link itself */
  stat(path: FilePath, noFollow: boolean): Promise<FileAttributes> {
    return this.#lookups.stat("stat", path, noFollow);
  }

  /** Target of a symbolic link, as stored; EINVAL for anything else. */
  readLink(path: FilePath): Promise<Uint8Array> {
    return this.#lookups.readLink(path);
  }

  /** Opens a regular file, without waiting for others, and nothing else: opening a device or FIFO may have effects. */
  openRegular(path: FilePath): Promise<RegularFile | { readonly notRegular: FileType }> {
    const lookups = this.#lookups;
    return openRegular(path, (seen) => lookups.stat("open", seen, false), lookups.open);
  }

  /** Creates a file of mode 0600 in a folder. */
  async create(folder: FilePath, options: NewFileOptions): Promise<NewFile> {
    const { work, leftovers } = this.#shared;
    return createFile(await this.#folderAt("create", folder), work, leftovers, options);
  }

  /** The same for a small one with its content and attributes, from a packed entry of that name (tree/batch.ts). */
  async createSmall(folder: FilePath, entry: Uint8Array, exclusive: boolean): Promise<NewFile> {
    const { work } = this.#shared;
    return createSmallFile(await this.#folderAt("create", folder), work, entry, exclusive);
  }

  /** Creates a directory; mode exactly, whatever the umask. */
  async makeDirectory(path: FilePath, owner: FileOwner, mode: number): Promise<void> {
    const { folder, name } = splitPath(path);
    await using above = await this.#folderAt("mkdir", folder);
    await above.makeDirectory(name, owner, mode);
  }

  /** Removes an empty directory. Never rejects: what cannot be removed stays. */
  async removeDirectory(path: FilePath): Promise<void> {
    const { folder, name } = splitPath(path);
    await using above = await this.#folderAt("mkdir", folder).catch(() => undefined);
    await above?.remove(name, true);
  }

  /** Opens a folder: to read it, or only to reach its entries. Needs openat2(2): AgentError UNIMPLEMENTED without. */
  async openFolder(path: FilePath, reads: boolean): Promise<OpenFolder> {
    // Loaded at the first call that needs it, as open-entry.ts.
    const { openFolder } = await import("../tree/open-folder.ts");
    return openFolder(path, reads, this.#lookups.open, this.#shared.work);
  }

  /** Opens an entry of any type, without effects on it. */
  async openEntry(path: FilePath, noFollow: boolean): Promise<OpenEntry> {
    const { openEntry } = await import("../tree/open-entry.ts");
    return openEntry(path, noFollow, this.#lookups.open);
  }

  #folderAt(step: FileStep, path: Uint8Array): Promise<Folder> {
    return Folder.open(step, path, this.#lookups.open, this.#shared.work);
  }
}

/**
 * The tree beneath a folder, by relative paths. A path that leads out of it rejects with PathEscapes, even if somebody
 * changes the tree meanwhile. Dispose of it after everything that was opened through it.
 */
class FolderView extends FileTree implements AsyncDisposable {
  readonly #folder: Descriptor;

  constructor(folder: Descriptor, lookups: Lookups, shared: Shared) {
    super(lookups, shared);
    this.#folder = folder;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#folder[Symbol.asyncDispose]();
  }
}

/** The file system that this process sees. Works on libuv's threads, except for reads of cached data. */
export class FileSystem extends FileTree {
  readonly #paths: Paths;
  readonly #shared: Shared;

  constructor(addon: Addon, timers: Timers) {
    const shared = { work: new FileWork(addon, timers), leftovers: new Leftovers() };
    const paths = new Paths(shared.work);
    super(
      {
        open: (step, path, flags) => paths.open(step, path, flags),
        stat: async (step, path, noFollow) => {
          const bytes = Buffer.from(path);
          const look = noFollow ? statLink : statPath;
          return fileAttributes(await paths.follow(step, bytes, () => look(bytes, { bigint: true })));
        },
        readLink: (path) =>
          paths.follow("readlink", path, () => targetOfLink(Buffer.from(path), { encoding: "buffer" })),
      },
      shared,
    );
    this.#paths = paths;
    this.#shared = shared;
  }

  /** Size and free space of the file system that a path leads into (statfs(2)). */
  async space(path: FilePath): Promise<FileSystemSpace> {
    const bytes = Buffer.from(path);
    const { frsize, blocks, bfree, bavail, files, ffree } = await this.#paths.follow("statfs", bytes, () =>
      statfsOf(bytes),
    );
    const [totalBytes, freeBytes, availableBytes] = [blocks * frsize, bfree * frsize, bavail * frsize];
    return { totalBytes, freeBytes, availableBytes, inodes: files, freeInodes: ffree };
  }

  /**
   * A view of a folder, whose own path is followed as usual.
   *
   * @param noSymlinks follow no symbolic link beneath it either
   * @throws AgentError UNIMPLEMENTED where the kernel cannot do that
   */
  async beneath(root: FilePath, noSymlinks: boolean): Promise<FolderView> {
    await using opened = new AsyncDisposableStack();
    const folder = opened.use(await this.#paths.open("open_beneath", root, O_PATH | constants.O_DIRECTORY));
    const lookups = lookupsBeneath(folder, noSymlinks, this.#shared.work);
    await checkOpenat2(() => lookups.open("open_beneath", HERE, O_PATH), "beneath");
    opened.move();
    return new FolderView(folder, lookups, this.#shared);
  }
}

/** Path lookups beneath a folder. The kernel enforces that (openat2(2)), even if the folder changes meanwhile. */
function lookupsBeneath(folder: Descriptor, noSymlinks: boolean, work: FileWork): Lookups {
  const resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (noSymlinks ? RESOLVE_NO_SYMLINKS : 0);
  const paths = new Paths(work, folder);
  const open: OpenPath = async (step, path, flags) => {
    try {
      return await paths.open(step, path, flags, resolve);
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      // openat2(2): EXDEV also for an absolute link that would stay inside; ELOOP for a loop, a magic link, and for any
      // link with noSymlinks.
      const escapes = error.errno === "EXDEV" || error.errno === "ELOOP";
      throw escapes ? new PathEscapes(step, error.errno, noSymlinks) : error;
    }
  };
  return {
    open,
    stat: async (step, path, noFollow) => {
      await using file = await open(step, path, O_PATH | (noFollow ? constants.O_NOFOLLOW : 0));
      return await file.attributes(step);
    },
    readLink: async (path) => {
      await using file = await open("readlink", path, O_PATH | constants.O_NOFOLLOW);
      return await file.nativeBytes("readlink", (addon, fd) => addon.targetOf(fd));
    },
  };
}
