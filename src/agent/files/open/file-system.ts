import {
  type BigIntStats,
  close as closeCallback,
  constants,
  lstat,
  open as openCallback,
  read as readCallback,
  readlink,
  stat,
  type StatsFs,
  statfs,
} from "node:fs";
import { promisify } from "node:util";
import { type FileStep, FileSystemError, type FileSystemSpace, type Timers } from "../../domain/index.ts";
import {
  type Addon,
  AT_SYMLINK_NOFOLLOW,
  RESOLVE_BENEATH,
  RESOLVE_NO_MAGICLINKS,
  RESOLVE_NO_SYMLINKS,
  WORKING_DIRECTORY,
} from "../../native/index.ts";
import type { FileAttributes, FilePath, FileType } from "../attributes.ts";
import { FileWork } from "../threads/work.ts";
import { type Descriptor, fileAttributes, openIn, type OpenPath } from "./descriptor.ts";
import { type DirectoryUse, OpenDirectory } from "./directory.ts";
import { checkOpenat2 } from "./openat2.ts";
import { PathEscapes } from "./path-escapes.ts";
import { O_PATH, Paths } from "./paths.ts";
import { openRegular, type RegularFile } from "./regular-file.ts";

const CURRENT_DIRECTORY = Buffer.from(".");
const statPath: (path: Buffer, options: { bigint: true }) => Promise<BigIntStats> = promisify(stat);
const statLink: (path: Buffer, options: { bigint: true }) => Promise<BigIntStats> = promisify(lstat);
const targetOfLink = promisify(readlink);
const statfsOf: (path: Buffer) => Promise<StatsFs> = promisify(statfs);
const [openFile, readFile, closeFile] = [promisify(openCallback), promisify(readCallback), promisify(closeCallback)];

/** Functions that look up paths. All of them throw FileSystemError. */
interface Lookups {
  readonly open: OpenPath;
  readonly stat: (step: FileStep, path: FilePath, noFollow: boolean) => Promise<FileAttributes>;
  readonly readLink: (path: FilePath) => Promise<Uint8Array>;
}

/** Opens files and directories by path. Rejects with FileSystemError and never blocks the event loop. */
export class FileTree {
  readonly #lookups: Lookups;
  readonly #work: FileWork;

  constructor(lookups: Lookups, work: FileWork) {
    this.#lookups = lookups;
    this.#work = work;
  }

  /** @param noFollow whether to stat a symbolic link itself, not its target */
  stat(path: FilePath, noFollow: boolean): Promise<FileAttributes> {
    return this.#lookups.stat("stat", path, noFollow);
  }

  /** Reads a symbolic link. Rejects with EINVAL for anything else. */
  readLink(path: FilePath): Promise<Uint8Array> {
    return this.#lookups.readLink(path);
  }

  /** Opens a regular file without blocking. Refuses other types: opening a device or a FIFO may have side effects. */
  openRegular(path: FilePath): Promise<RegularFile | { readonly notRegular: FileType }> {
    const lookups = this.#lookups;
    return openRegular(path, (seen) => lookups.stat("open", seen, false), lookups.open);
  }

  /** Opens an entry of any type with O_PATH, only for its attributes, so the open has no side effects. */
  openEntry(path: FilePath, noFollow: boolean): Promise<Descriptor> {
    return this.#lookups.open("open", path, O_PATH | (noFollow ? constants.O_NOFOLLOW : 0));
  }

  /** Opens a directory. `step` names the operation in an error. */
  openDirectory(step: FileStep, path: FilePath, use: DirectoryUse): Promise<OpenDirectory> {
    return OpenDirectory.open(step, path, use, this.#lookups.open, this.#work);
  }

  /**
   * Opens a directory for operations that require openat2(2). Throws AgentError UNIMPLEMENTED if the kernel lacks this
   * system call.
   */
  async openTree(path: FilePath, use: "read" | "reach"): Promise<OpenDirectory> {
    await using opened = new AsyncDisposableStack();
    const directory = opened.use(await this.openDirectory("open", path, use));
    const how = { step: "open", on: [directory.descriptor] } as const;
    const { fd } = directory.descriptor;
    await checkOpenat2(
      () => openIn(this.#work, how, fd, CURRENT_DIRECTORY, O_PATH, { resolve: RESOLVE_BENEATH }),
      "FileTree",
    );
    opened.move();
    return directory;
  }
}

/**
 * The tree below a directory, addressed by relative paths. Operations on a path that leaves the tree reject with
 * PathEscapes, even if the tree is changed concurrently. Dispose of the view after everything that was opened through
 * it.
 */
class DirectoryView extends FileTree implements AsyncDisposable {
  readonly #directory: Descriptor;

  constructor(directory: Descriptor, lookups: Lookups, work: FileWork) {
    super(lookups, work);
    this.#directory = directory;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#directory[Symbol.asyncDispose]();
  }
}

/** The file system as this process sees it. Operations run on libuv's threads, except for reads of cached data. */
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
          const flags = noFollow ? AT_SYMLINK_NOFOLLOW : 0;
          const exactTimes = (): Promise<Buffer | number> => addon.timesOf(WORKING_DIRECTORY, bytes, flags);
          return paths.follow(step, bytes, async () => fileAttributes(await look(bytes, { bigint: true }), exactTimes));
        },
        readLink: (path) =>
          paths.follow("readlink", path, () => targetOfLink(Buffer.from(path), { encoding: "buffer" })),
      },
      work,
    );
    this.#paths = paths;
    this.#work = work;
  }

  /** Size and free space of the file system that contains a path (statfs(2)). */
  async space(path: FilePath): Promise<FileSystemSpace> {
    const bytes = Buffer.from(path);
    const { frsize, blocks, bfree, bavail, files, ffree } = await this.#paths.follow("statfs", bytes, () =>
      statfsOf(bytes),
    );
    const [totalBytes, freeBytes, availableBytes] = [blocks * frsize, bfree * frsize, bavail * frsize];
    return { totalBytes, freeBytes, availableBytes, inodes: files, freeInodes: ffree };
  }

  /**
   * Reads the start of a file of /proc/PID. Rejects if the file cannot be read, or if the read hangs because the
   * process hangs. Such a read keeps occupying a thread, but does not make /proc count as a hung file system.
   */
  async readStart(path: string, limitBytes: number): Promise<Uint8Array> {
    return this.#work.step({ step: "read", on: [] }, async () => {
      const fd = await openFile(path, "r");
      const bytes = Buffer.alloc(limitBytes);
      try {
        return bytes.subarray(0, (await readFile(fd, bytes, 0, limitBytes, 0)).bytesRead);
      } finally {
        await closeFile(fd);
      }
    });
  }

  /**
   * Opens a view of a directory. Symbolic links in the path of the directory itself are followed as usual.
   *
   * @param noSymlinks whether to refuse paths with a symbolic link below the directory
   * @throws AgentError UNIMPLEMENTED if the kernel lacks openat2(2)
   */
  async beneath(root: FilePath, noSymlinks: boolean): Promise<DirectoryView> {
    await using opened = new AsyncDisposableStack();
    const directory = opened.use(await this.#paths.open("open_beneath", root, O_PATH | constants.O_DIRECTORY));
    const lookups = lookupsBeneath(directory, noSymlinks, this.#work);
    await checkOpenat2(() => lookups.open("open_beneath", CURRENT_DIRECTORY, O_PATH), "beneath");
    opened.move();
    return new DirectoryView(directory, lookups, this.#work);
  }
}

/**
 * Looks up paths that must stay below a directory. openat2(2) enforces this in the kernel, even if the tree is changed
 * concurrently.
 */
function lookupsBeneath(directory: Descriptor, noSymlinks: boolean, work: FileWork): Lookups {
  const resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (noSymlinks ? RESOLVE_NO_SYMLINKS : 0);
  const paths = new Paths(work, directory);
  const open: OpenPath = async (step, path, flags) => {
    try {
      return await paths.open(step, path, flags, resolve);
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      // openat2(2) returns EXDEV for every absolute link, even to a target inside. It returns ELOOP for a forbidden
      // link and for a loop.
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
