import { constants } from "node:fs";
import { type FileStep, FileSystemError, type Mount } from "../../domain/index.ts";
import {
  RESOLVE_BENEATH,
  RESOLVE_IN_ROOT,
  RESOLVE_NO_MAGICLINKS,
  RESOLVE_NO_SYMLINKS,
  RESOLVE_NO_XDEV,
} from "../../native/index.ts";
import type { FileAttributes, FilePath } from "../attributes.ts";
import { mountAt, mountOf, mountsBelow } from "../threads/mounts.ts";
import type { Work } from "../threads/operation.ts";
import type { FileWork } from "../threads/work.ts";
import { type Descriptor, openIn, type OpenPath } from "./descriptor.ts";
import { MountsBelow } from "./mounts-below.ts";
import { O_PATH } from "./paths.ts";
import { openRegular, type RegularFile } from "./regular-file.ts";

const READING = constants.O_RDONLY | constants.O_DIRECTORY;
const REACHING = O_PATH | constants.O_DIRECTORY;
const ENTRY = O_PATH | constants.O_NOFOLLOW;
const ABOVE = Buffer.from("..");
/** The errno for a directory with execute but no read permission: it cannot be listed or synced. */
const UNREADABLE = "EACCES";
/** Errnos of fsync(2) on file systems that do not sync directories. */
const NOT_SYNCABLE: ReadonlySet<string> = new Set(["EINVAL", "ENOTSUP", "ENOSYS"]);

/**
 * How to open a directory:
 *
 * - "read": for reading
 * - "reach": with O_PATH, only to reach its entries
 * - "change": like "read", or like "reach" if reading is not permitted
 */
export type DirectoryUse = "read" | "reach" | "change";

/**
 * An open directory. Its operations use the descriptor, so a concurrent rename or link cannot redirect them, and the
 * path may be longer than PATH_MAX. Names are single components. Links are followed only where a method says so.
 * Methods reject with FileSystemError.
 */
export class OpenDirectory implements AsyncDisposable {
  readonly descriptor: Descriptor;
  readonly work: FileWork;
  /** Whether the directory is open for reading, so that it can be synced. */
  readonly isReadable: boolean;
  #knowsMounts = false;

  /** Opens a directory by its path. `step` names the operation in an error. */
  static async open(
    step: FileStep,
    path: FilePath,
    use: DirectoryUse,
    open: OpenPath,
    work: FileWork,
  ): Promise<OpenDirectory> {
    if (use === "reach") return new OpenDirectory(await open(step, path, REACHING), work, false);
    try {
      return new OpenDirectory(await open(step, path, READING), work, true);
    } catch (error) {
      if (use === "read" || !(error instanceof FileSystemError) || error.errno !== UNREADABLE) throw error;
      return new OpenDirectory(await open(step, path, REACHING), work, false);
    }
  }

  private constructor(descriptor: Descriptor, work: FileWork, isReadable: boolean) {
    this.descriptor = descriptor;
    this.work = work;
    this.isReadable = isReadable;
  }

  /** The file system of the directory; undefined without /proc. */
  get fileSystem(): string | undefined {
    return mountOf(this.descriptor.fd)?.fileSystem;
  }

  /** A path of this directory in /proc, valid while the directory is open. Without /proc, the path does not exist. */
  get link(): string {
    return `/proc/self/fd/${this.descriptor.fd}`;
  }

  attributes(step: FileStep): Promise<FileAttributes> {
    return this.descriptor.attributes(step);
  }

  /** Opens an entry of any type. `flags` are those of open(2). */
  openEntry(step: FileStep, name: FilePath, flags: number): Promise<Descriptor> {
    return openIn(this.work, this.#here(step), this.descriptor.fd, name, flags | constants.O_NOFOLLOW);
  }

  /**
   * Opens an entry with O_PATH. Rejects with EXDEV if the entry is a mount point, because the file system that is
   * mounted there may hang.
   */
  openUnmounted(step: FileStep, name: FilePath): Promise<Descriptor> {
    const options = { resolve: RESOLVE_BENEATH | RESOLVE_NO_XDEV };
    return openIn(this.work, this.#here(step), this.descriptor.fd, name, ENTRY, options);
  }

  /** Opens the root of the mount whose mount point is this entry, with O_PATH. */
  openMounted(step: FileStep, name: FilePath): Promise<Descriptor> {
    return openIn(this.work, this.#intoMount<Descriptor>(step, name), this.descriptor.fd, name, ENTRY);
  }

  /** Opens a subdirectory. Without `crossesMounts`, rejects with EXDEV if it is a mount point. */
  async enter(name: FilePath, crossesMounts: boolean): Promise<OpenDirectory> {
    const how = crossesMounts ? this.#intoMount<Descriptor>("open", name) : this.#here<Descriptor>("open");
    const resolve = RESOLVE_BENEATH | (crossesMounts ? 0 : RESOLVE_NO_XDEV);
    const flags = READING | constants.O_NOFOLLOW;
    return this.#opened(await openIn(this.work, how, this.descriptor.fd, name, flags, { resolve }));
  }

  /** Opens the current parent of this directory, even if the directory was moved since it was opened. */
  async parent(): Promise<OpenDirectory> {
    const how = this.#here<Descriptor>("open");
    const options = { resolve: RESOLVE_NO_SYMLINKS };
    return this.#opened(await openIn(this.work, how, this.descriptor.fd, ABOVE, READING, options));
  }

  /**
   * Opens a directory below this one, to change its entries. An absolute link on the path is followed inside this
   * directory, as in a chroot.
   */
  async openBeneath(
    step: FileStep,
    path: FilePath,
    noSymlinks: boolean,
    mount: Mount | undefined,
  ): Promise<OpenDirectory> {
    try {
      return await OpenDirectory.open(step, path, "change", this.#beneath(noSymlinks, mount), this.work);
    } catch (error) {
      if (noSymlinks || !(error instanceof FileSystemError) || error.errno !== "EXDEV") throw error;
      const inRoot = this.#beneath(false, mount, RESOLVE_IN_ROOT);
      const found = await OpenDirectory.open(step, path, "change", inRoot, this.work).catch(() => undefined);
      if (found === undefined) throw error;
      return found;
    }
  }

  /** Opens a regular file below this directory without following links. Undefined if it is no longer a regular file. */
  async openFile(path: FilePath, mount: Mount | undefined): Promise<RegularFile | undefined> {
    const open = this.#beneath(true, mount);
    const stat = async (sought: FilePath): Promise<FileAttributes> => {
      await using entry = await open("stat", sought, ENTRY);
      return await entry.attributes("stat");
    };
    const file = await openRegular(path, stat, open);
    return "notRegular" in file ? undefined : file;
  }

  /**
   * Finds the mounts below this directory without accessing them. From then on, a lookup fails when it reaches a mount
   * point, unless its operation names the mount on which it works.
   */
  findMounts(): MountsBelow {
    const mounts = mountsBelow(this.descriptor.fd);
    this.#knowsMounts = mounts !== undefined;
    return new MountsBelow(mounts ?? []);
  }

  /**
   * Whether a lookup must fail when it reaches a mount point. True if `findMounts` has found the mounts, unless the
   * operation may enter one of them (`named`). A symbolic link on the path could take the operation into another mount,
   * which may hang.
   */
  refusesMounts(named: Mount | undefined): boolean {
    return named === undefined && this.#knowsMounts;
  }

  /** Syncs the directory. Does nothing if its file system does not sync directories. */
  async sync(): Promise<void> {
    try {
      if (this.isReadable) await this.descriptor.sync("sync_folder");
    } catch (error) {
      if (!(error instanceof FileSystemError) || !NOT_SYNCABLE.has(error.errno)) throw error;
    }
  }

  /** Syncs the whole file system (syncfs(2)). Throws the signal's reason if it is aborted before the sync starts. */
  async syncAll(signal: AbortSignal): Promise<void> {
    await this.work.native({ ...this.#here("sync"), signal }, (addon) => addon.syncFileSystem(this.descriptor.fd));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.descriptor[Symbol.asyncDispose]();
  }

  #opened(descriptor: Descriptor): OpenDirectory {
    return new OpenDirectory(descriptor, this.work, true);
  }

  #beneath(noSymlinks: boolean, mount: Mount | undefined, bound: number = RESOLVE_BENEATH): OpenPath {
    const within = this.refusesMounts(mount) ? RESOLVE_NO_XDEV : 0;
    const resolve = bound | RESOLVE_NO_MAGICLINKS | (noSymlinks ? RESOLVE_NO_SYMLINKS : 0) | within;
    return (step, path, flags) =>
      openIn(this.work, { ...this.#here(step), mount }, this.descriptor.fd, path, flags, { resolve });
  }

  #here<Value>(step: FileStep): Work<Value> {
    return { step, on: [this.descriptor] };
  }

  /**
   * An operation that enters the mount at the entry `name`, if there is one. If the operation hangs, this mount counts
   * as hung.
   */
  #intoMount<Value>(step: FileStep, name: FilePath): Work<Value> {
    return { ...this.#here(step), mount: mountAt(this.descriptor.fd, name) };
  }
}
