import { type BigIntStats, constants, lstat, readlink, stat, type StatsFs, statfs } from "node:fs";
import { promisify } from "node:util";
import { type FileStep, FileSystemError, type FileSystemSpace, type Timers } from "../../domain/index.ts";
import { type Addon, RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS } from "../../native/index.ts";
import type { FileAttributes, FilePath, FileType } from "../attributes.ts";
import { FileWork } from "../threads/work.ts";
import { type Descriptor, fileAttributes, openIn, type OpenPath } from "./descriptor.ts";
import { type FolderUse, OpenFolder } from "./folder.ts";
import { checkOpenat2 } from "./openat2.ts";
import { PathEscapes } from "./path-escapes.ts";
import { O_PATH, Paths } from "./paths.ts";
import { openRegular, type RegularFile } from "./regular-file.ts";

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

/** Opens files and directories by their paths. Rejects with FileSystemError and never blocks the event loop. */
export class FileTree {
  readonly #lookups: Lookups;
  readonly #work: FileWork;

  constructor(lookups: Lookups, work: FileWork) {
    this.#lookups = lookups;
    this.#work = work;
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

  /** Opens an entry of any type for its attributes alone, without effects on it. */
  openEntry(path: FilePath, noFollow: boolean): Promise<Descriptor> {
    return this.#lookups.open("open", path, O_PATH | (noFollow ? constants.O_NOFOLLOW : 0));
  }

  /** Opens a directory. `step` is the operation to name in an error. */
  openFolder(step: FileStep, path: FilePath, use: FolderUse): Promise<OpenFolder> {
    return OpenFolder.open(step, path, use, this.#lookups.open, this.#work);
  }

  /** The same where what follows needs openat2(2): AgentError UNIMPLEMENTED without. */
  async openTree(path: FilePath, use: "read" | "reach"): Promise<OpenFolder> {
    await using opened = new AsyncDisposableStack();
    const folder = opened.use(await this.openFolder("open", path, use));
    const how = { step: "open", on: [folder.descriptor] } as const;
    const { fd } = folder.descriptor;
    await checkOpenat2(() => openIn(this.#work, how, fd, HERE, O_PATH, { resolve: RESOLVE_BENEATH }), "FileTree");
    opened.move();
    return folder;
  }
}

/**
 * The tree beneath a folder, by relative paths. A path that leads out of it rejects with PathEscapes, even if somebody
 * changes the tree meanwhile. Dispose of it after everything that was opened through it.
 */
class FolderView extends FileTree implements AsyncDisposable {
  readonly #folder: Descriptor;

  constructor(folder: Descriptor, lookups: Lookups, work: FileWork) {
    super(lookups, work);
    this.#folder = folder;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#folder[Symbol.asyncDispose]();
  }
}

/** The file system that this process sees. Works on libuv's threads, except for reads of cached data. */
export class FileSystem extends FileTree {
  readonly #paths: Paths;
  readonly #work: FileWork;

  constructor(addon: Addon, timers: Timers) {
    const work = new FileWork(addon, timers);
    const paths = new Paths(work);
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
      work,
    );
    this.#paths = paths;
    this.#work = work;
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
    const lookups = lookupsBeneath(folder, noSymlinks, this.#work);
    await checkOpenat2(() => lookups.open("open_beneath", HERE, O_PATH), "beneath");
    opened.move();
    return new FolderView(folder, lookups, this.#work);
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
