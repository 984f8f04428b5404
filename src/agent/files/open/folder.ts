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
/** The errno of a directory that may be entered but not listed: it cannot be opened for reading or synced. */
const UNREADABLE = "EACCES";
/** Errnos of fsync(2) on file systems that do not sync directories. */
const NOT_SYNCABLE: ReadonlySet<string> = new Set(["EINVAL", "ENOTSUP", "ENOSYS"]);

/** How a directory is opened: to read it, only to reach its entries, or to read it where that is permitted. */
export type FolderUse = "read" | "reach" | "change";

/**
 * An open directory. All goes through its descriptor: no rename or link redirects it, and its path may be long. Names
 * are single names, and no link is followed unless a method says so. Everything rejects with FileSystemError.
 */
export class OpenFolder implements AsyncDisposable {
  readonly descriptor: Descriptor;
  readonly work: FileWork;
  /** It is open for reading: it can be synced. */
  readonly isReadable: boolean;
  #knowsMounts = false;

  /** Opens a directory by its path. `step` is the operation to name in an error. */
  static async open(
    step: FileStep,
    path: FilePath,
    use: FolderUse,
    open: OpenPath,
    work: FileWork,
  ): Promise<OpenFolder> {
    if (use === "reach") return new OpenFolder(await open(step, path, REACHING), work, false);
    try {
      return new OpenFolder(await open(step, path, READING), work, true);
    } catch (error) {
      if (use === "read" || !(error instanceof FileSystemError) || error.errno !== UNREADABLE) throw error;
      return new OpenFolder(await open(step, path, REACHING), work, false);
    }
  }

  private constructor(descriptor: Descriptor, work: FileWork, isReadable: boolean) {
    this.descriptor = descriptor;
    this.work = work;
    this.isReadable = isReadable;
  }

  /** Its file system; undefined without /proc. */
  get fileSystem(): string | undefined {
    return mountOf(this.descriptor.fd)?.fileSystem;
  }

  /** A path that leads to this directory while it is open. Leads nowhere without /proc. */
  get link(): string {
    return `/proc/self/fd/${this.descriptor.fd}`;
  }

  attributes(step: FileStep): Promise<FileAttributes> {
    return this.descriptor.attributes(step);
  }

  /** Opens an entry of any type; flags as open(2) has them. */
  openEntry(step: FileStep, name: FilePath, flags: number): Promise<Descriptor> {
    return openIn(this.work, this.#here(step), this.descriptor.fd, name, flags | constants.O_NOFOLLOW);
  }

  /** Opens an entry for its attributes alone. A mount point is EXDEV: what is mounted there may hang. */
  openUnmounted(step: FileStep, name: FilePath): Promise<Descriptor> {
    const options = { resolve: RESOLVE_BENEATH | RESOLVE_NO_XDEV };
    return openIn(this.work, this.#here(step), this.descriptor.fd, name, ENTRY, options);
  }

  /** Opens what is mounted at an entry for its attributes alone. */
  openMounted(step: FileStep, name: FilePath): Promise<Descriptor> {
    return openIn(this.work, this.#intoMount<Descriptor>(step, name), this.descriptor.fd, name, ENTRY);
  }

  /** Opens a directory in it; a mount point only with `crossesMounts` (EXDEV). */
  async enter(name: FilePath, crossesMounts: boolean): Promise<OpenFolder> {
    const how = crossesMounts ? this.#intoMount<Descriptor>("open", name) : this.#here<Descriptor>("open");
    const resolve = RESOLVE_BENEATH | (crossesMounts ? 0 : RESOLVE_NO_XDEV);
    const flags = READING | constants.O_NOFOLLOW;
    return this.#opened(await openIn(this.work, how, this.descriptor.fd, name, flags, { resolve }));
  }

  /** Opens the directory that holds it now. */
  async parent(): Promise<OpenFolder> {
    const how = this.#here<Descriptor>("open");
    const options = { resolve: RESOLVE_NO_SYMLINKS };
    return this.#opened(await openIn(this.work, how, this.descriptor.fd, ABOVE, READING, options));
  }

  /**
   * Opens a directory somewhere beneath it, to change entries there. An absolute link leads to what it names within
   * this directory, if that is there.
   */
  async openBeneath(
    step: FileStep,
    path: FilePath,
    noSymlinks: boolean,
    mount: Mount | undefined,
  ): Promise<OpenFolder> {
    try {
      return await OpenFolder.open(step, path, "change", this.#beneath(noSymlinks, mount), this.work);
    } catch (error) {
      if (noSymlinks || !(error instanceof FileSystemError) || error.errno !== "EXDEV") throw error;
      const inRoot = this.#beneath(false, mount, RESOLVE_IN_ROOT);
      const found = await OpenFolder.open(step, path, "change", inRoot, this.work).catch(() => undefined);
      if (found === undefined) throw error;
      return found;
    }
  }

  /** Opens a regular file beneath it, without following a link; undefined: it is not regular any more. */
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
   * Finds the mounts below it, without touching them. All that is done beneath the directory names the one that it
   * leads into.
   */
  findMounts(): MountsBelow {
    const mounts = mountsBelow(this.descriptor.fd);
    this.#knowsMounts = mounts !== undefined;
    return new MountsBelow(mounts ?? []);
  }

  /** Whether a path beneath it may not lead into a mount: one that was not named, such as behind a link. */
  refusesMounts(named: Mount | undefined): boolean {
    return named === undefined && this.#knowsMounts;
  }

  /** Syncs its entries. On a file system that does not sync directories it does nothing. */
  async sync(): Promise<void> {
    try {
      if (this.isReadable) await this.descriptor.sync("sync_folder");
    } catch (error) {
      if (!(error instanceof FileSystemError) || !NOT_SYNCABLE.has(error.errno)) throw error;
    }
  }

  /** Forces all of its file system to the disk. A signal that is aborted before this has begun is thrown. */
  async syncAll(signal: AbortSignal): Promise<void> {
    await this.work.native({ ...this.#here("sync"), signal }, (addon) => addon.syncFileSystem(this.descriptor.fd));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.descriptor[Symbol.asyncDispose]();
  }

  #opened(descriptor: Descriptor): OpenFolder {
    return new OpenFolder(descriptor, this.work, true);
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

  /** Runs an operation that may touch a mount at a name: the mount may hang, not the directory. */
  #intoMount<Value>(step: FileStep, name: FilePath): Work<Value> {
    return { ...this.#here(step), mount: mountAt(this.descriptor.fd, name) };
  }
}
