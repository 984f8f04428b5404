import { constants } from "node:fs";
import { type Errno, type FileStep, FileSystemError, type Mount } from "../../domain/index.ts";
import type { FileAttributes, FilePath } from "../attributes.ts";
import {
  type FolderEntry,
  type FolderIdentity,
  type FolderPage,
  type FolderPosition,
  type Removable,
  unpackFolder,
} from "./entries.ts";
import {
  errnoName,
  RESOLVE_BENEATH,
  RESOLVE_NO_MAGICLINKS,
  RESOLVE_NO_SYMLINKS,
  RESOLVE_NO_XDEV,
} from "../../native/index.ts";
import { type Descriptor, type NativeJob, openIn, type OpenPath } from "../paths/descriptor.ts";
import { Folder } from "../paths/folder.ts";
import type { NewFileOptions } from "../transfer/file-writer.ts";
import { createFile, Leftovers, type NewFile } from "../transfer/new-file.ts";
import { openRegular, type RegularFile } from "../transfer/regular-file.ts";
import { mountAt, mountOf, mountsBelow } from "../threads/mounts.ts";
import { NO_MOUNTS, NO_SYMLINKS } from "./batch.ts";
import { MountsBelow } from "./mounts-below.ts";
import { checkOpenat2 } from "../paths/openat2.ts";
import { O_PATH } from "../paths/paths.ts";
import type { Work } from "../threads/operation.ts";
import type { FileWork } from "../threads/work.ts";

const READING = constants.O_RDONLY | constants.O_DIRECTORY;
const REACHING = O_PATH | constants.O_DIRECTORY;
const ENTRY = O_PATH | constants.O_NOFOLLOW;
const HERE = Buffer.from(".");
const ABOVE = Buffer.from("..");
const [SLASH, NUL] = [Buffer.from("/"), Buffer.from([0])];

/** Opens a folder by its path, to read it or only to reach its entries. */
export async function openFolder(path: FilePath, reads: boolean, open: OpenPath, work: FileWork): Promise<OpenFolder> {
  await using opened = new AsyncDisposableStack();
  const folder = opened.use(await open("open", path, reads ? READING : REACHING));
  const how = { step: "open", on: [folder] } as const;
  await checkOpenat2(() => openIn(work, how, folder.fd, HERE, O_PATH, { resolve: RESOLVE_BENEATH }), "FileTree");
  opened.move();
  return new OpenFolder(folder, work);
}

/** An open folder. Names are single names, and no link is followed. Everything rejects with FileSystemError. */
export class OpenFolder implements AsyncDisposable {
  readonly #descriptor: Descriptor;
  readonly #work: FileWork;
  #identity: FolderIdentity = "";
  #knowsMounts = false;

  constructor(descriptor: Descriptor, work: FileWork) {
    this.#descriptor = descriptor;
    this.#work = work;
  }

  /** Its file system; undefined without /proc. */
  get fileSystem(): string | undefined {
    return mountOf(this.#descriptor.fd)?.fileSystem;
  }

  /** Which folder it is, as of its last read. */
  get identity(): FolderIdentity {
    return this.#identity;
  }

  /** The next entries, without those that were removed in the meantime. Undefined: from the beginning. */
  async read(from: FolderPosition | undefined): Promise<FolderPage> {
    const { entries, next } = await this.#page(from, true);
    if (!entries.some(({ isMountPoint }) => isMountPoint)) return { entries, next };
    const whole: FolderEntry[] = [];
    for (const entry of entries) whole.push(entry.isMountPoint ? await this.#mounted(entry) : entry);
    return { entries: whole, next };
  }

  /** The same, with no more than names and types. */
  readNames(from: FolderPosition | undefined): Promise<FolderPage> {
    return this.#page(from, false);
  }

  /** Opens a folder in it; a mount point only with `crossesMounts` (EXDEV). */
  async enter(name: FilePath, crossesMounts: boolean): Promise<OpenFolder> {
    const how = crossesMounts ? this.#intoMount("open", name) : this.#here<Descriptor>("open");
    const resolve = RESOLVE_BENEATH | (crossesMounts ? 0 : RESOLVE_NO_XDEV);
    const flags = READING | constants.O_NOFOLLOW;
    return new OpenFolder(await openIn(this.#work, how, this.#descriptor.fd, name, flags, { resolve }), this.#work);
  }

  /** Opens the parent folder, which must be the one that the walk came from: ESTALE if this folder was moved. */
  async above(left: FolderIdentity): Promise<OpenFolder> {
    const how = this.#here<Descriptor>("open");
    const options = { resolve: RESOLVE_NO_SYMLINKS };
    const above = new OpenFolder(
      await openIn(this.#work, how, this.#descriptor.fd, ABOVE, READING, options),
      this.#work,
    );
    await above.#page(undefined, false);
    if (above.identity === left) return above;
    await above[Symbol.asyncDispose]();
    throw new FileSystemError("open", "ESTALE");
  }

  /** Removes as many entries as it can in a moment. Returns an errno for each that it tried; undefined: removed. */
  async removeEach(entries: readonly Removable[]): Promise<readonly (Errno | undefined)[]> {
    const names = Buffer.concat(entries.flatMap(({ name, type }) => [type === "directory" ? SLASH : NUL, name, NUL]));
    return errnosOf(await this.#descriptor.nativeBytes("remove", (addon, fd) => addon.removeEach(fd, names)));
  }

  /**
   * Makes packed entries (batch.ts) beneath the folder, as many as it can in a moment. Returns an errno for each that
   * it tried; undefined: it is there. `synced`: one whose file system is synced later, as this one's is.
   */
  async putEach(
    entries: Buffer,
    flags: number,
    temporary: Uint8Array,
    mount: Mount | undefined,
    synced: OpenFolder,
  ): Promise<readonly (Errno | undefined)[]> {
    const how = this.#within(flags, mount);
    const later = synced.#descriptor;
    const job: NativeJob<Buffer | number> = (addon, fd) => addon.writeEntries(fd, entries, how, temporary, later.fd);
    return errnosOf(await this.#descriptor.nativeBytes("create", job, mount, [later]));
  }

  /** Reads files beneath the folder, by paths with a NUL each, as many as it can in a moment (addon readEntries). */
  readEach(paths: Buffer, eachBytes: number, roomBytes: number, mount: Mount | undefined): Promise<Buffer> {
    const how = this.#within(NO_SYMLINKS, mount);
    const job: NativeJob<Buffer | number> = (addon, fd) => addon.readEntries(fd, paths, how, eachBytes, roomBytes);
    return this.#descriptor.nativeBytes("read", job, mount);
  }

  /**
   * Finds the mounts below it, without touching them. All that is done beneath the folder names the one that it leads
   * into.
   */
  findMounts(): MountsBelow {
    const mounts = mountsBelow(this.#descriptor.fd);
    this.#knowsMounts = mounts !== undefined;
    return new MountsBelow(mounts ?? []);
  }

  /** A mount that was not named, such as behind a link, is not entered. */
  #within(flags: number, mount: Mount | undefined): number {
    return mount === undefined && this.#knowsMounts ? flags | NO_MOUNTS : flags;
  }

  /** Forces all of its file system to the disk. A signal that is aborted before this has begun is thrown. */
  async syncAll(signal: AbortSignal): Promise<void> {
    await this.#work.native({ ...this.#here("sync"), signal }, (addon) => addon.syncFileSystem(this.#descriptor.fd));
  }

  /** Creates a file of mode 0600 in a folder beneath this one. */
  async createIn(
    folder: FilePath,
    options: NewFileOptions,
    noSymlinks: boolean,
    mount: Mount | undefined,
  ): Promise<NewFile> {
    return createFile(
      await Folder.open("create", folder, this.#beneath(noSymlinks, mount), this.#work),
      this.#work,
      new Leftovers(),
      options,
    );
  }

  /** Opens a regular file beneath the folder, without following a link; undefined: it is none any more. */
  async openFile(path: FilePath, mount: Mount | undefined): Promise<RegularFile | undefined> {
    const open = this.#beneath(true, mount);
    const look = async (sought: FilePath): Promise<FileAttributes> => {
      await using entry = await open("stat", sought, ENTRY);
      return await entry.attributes("stat");
    };
    const file = await openRegular(path, look, open);
    return "notRegular" in file ? undefined : file;
  }

  /** Refuses a mount point, which cannot be removed by itself: EXDEV. */
  async checkMount(name: FilePath): Promise<void> {
    await (await this.#openHere("remove", name))[Symbol.asyncDispose]();
  }

  async makeLink(name: FilePath, target: Uint8Array, uid: number, gid: number): Promise<void> {
    const how = this.#here<number>("symlink");
    const error = await this.#work.native(how, (addon) =>
      addon.makeLinkIn(this.#descriptor.fd, name, target, uid, gid),
    );
    if (error !== 0) throw new FileSystemError("chown", errnoName(-error));
  }

  /** Moves an entry to another folder; EEXIST where that has one of the name, and `exclusive` is set. */
  async move(name: FilePath, target: OpenFolder, newName: FilePath, exclusive: boolean): Promise<void> {
    const to = target.#descriptor;
    await this.#descriptor.native("rename", (addon, fd) => addon.moveIn(fd, name, to.fd, newName, exclusive), [to]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#descriptor[Symbol.asyncDispose]();
  }

  async #page(from: FolderPosition | undefined, describes: boolean): Promise<FolderPage> {
    const position = positionBytes(from);
    const bytes = await this.#descriptor.nativeBytes("list", (addon, fd) => addon.entriesIn(fd, position, describes));
    const { identity, ...page } = unpackFolder(bytes, describes);
    this.#identity = identity;
    return page;
  }

  /** Describes what is mounted at an entry. If that does not answer, the entry gets the errno. */
  async #mounted(entry: FolderEntry): Promise<FolderEntry> {
    try {
      const how = this.#intoMount<Descriptor>("stat", entry.name);
      await using mounted = await openIn(this.#work, how, this.#descriptor.fd, entry.name, ENTRY);
      const attributes = await mounted.attributes("stat");
      return { ...entry, attributes, type: attributes.type };
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      return { ...entry, errno: error.errno };
    }
  }

  /** Opens an entry for its attributes alone, without following a link, and not what is mounted there. */
  #openHere(step: FileStep, name: FilePath): Promise<Descriptor> {
    const options = { resolve: RESOLVE_BENEATH | RESOLVE_NO_XDEV };
    return openIn(this.#work, this.#here(step), this.#descriptor.fd, name, ENTRY, options);
  }

  #beneath(noSymlinks: boolean, mount: Mount | undefined): OpenPath {
    const within = mount === undefined && this.#knowsMounts ? RESOLVE_NO_XDEV : 0;
    const resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (noSymlinks ? RESOLVE_NO_SYMLINKS : 0) | within;
    return (step, path, flags) =>
      openIn(this.#work, { ...this.#here(step), mount }, this.#descriptor.fd, path, flags, { resolve });
  }

  #here<Value>(step: FileStep): Work<Value> {
    return { step, on: [this.#descriptor] };
  }

  /** Runs an operation that may touch a mount at a name: the mount may hang, not the folder. */
  #intoMount<Value>(step: FileStep, name: FilePath): Work<Value> {
    return { ...this.#here(step), mount: mountAt(this.#descriptor.fd, name) };
  }
}

/** Errnos of 32 bits each, 0 for none. */
function errnosOf(bytes: Buffer): readonly (Errno | undefined)[] {
  return Array.from({ length: bytes.length / 4 }, (_, index) => {
    const error = bytes.readUInt32LE(index * 4);
    return error === 0 ? undefined : errnoName(-error);
  });
}

/** As the addon takes it: empty for the beginning. */
function positionBytes(position: FolderPosition | undefined): Buffer {
  const bytes = Buffer.alloc(position === undefined ? 0 : 8);
  if (position !== undefined) bytes.writeBigInt64LE(position);
  return bytes;
}
