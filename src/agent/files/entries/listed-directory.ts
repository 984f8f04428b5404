import { type Errno, FileSystemError } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import type { FilePath } from "../attributes.ts";
import type { OpenDirectory } from "../open/directory.ts";
import {
  type DirectoryEntry,
  type DirectoryIdentity,
  type DirectoryPage,
  type DirectoryPosition,
  type Removable,
  unpackDirectory,
} from "./listing.ts";

const [SLASH, NUL] = [Buffer.from("/"), Buffer.from([0])];

/** An open directory that a walk lists or empties; it owns the descriptor. Its methods reject with FileSystemError. */
export class ListedDirectory implements AsyncDisposable {
  readonly #directory: OpenDirectory;
  #identity: DirectoryIdentity = "";

  constructor(directory: OpenDirectory) {
    this.#directory = directory;
  }

  /** Device and inode of the directory, known after the first read. */
  get identity(): DirectoryIdentity {
    return this.#identity;
  }

  /** Reads the next entries; entries removed meanwhile are skipped. If `from` is undefined, reads from the start. */
  async read(from: DirectoryPosition | undefined): Promise<DirectoryPage> {
    const { entries, next } = await this.#page(from, true);
    if (!entries.some(({ isMountPoint }) => isMountPoint)) return { entries, next };
    const whole: DirectoryEntry[] = [];
    for (const entry of entries) whole.push(entry.isMountPoint ? await this.#mounted(entry) : entry);
    return { entries: whole, next };
  }

  /** Reads the names and types of the next entries, without the other attributes that `read` reports. */
  readNames(from: DirectoryPosition | undefined): Promise<DirectoryPage> {
    return this.#page(from, false);
  }

  /** Opens a subdirectory. If it is a mount point and `crossesMounts` is false, rejects with EXDEV. */
  async enter(name: FilePath, crossesMounts: boolean): Promise<ListedDirectory> {
    return new ListedDirectory(await this.#directory.enter(name, crossesMounts));
  }

  /**
   * Opens the parent directory. If the parent is not the directory from which the walk came, this directory was moved
   * during the walk, so the call rejects with ESTALE.
   *
   * @param left identity of the directory from which the walk came
   */
  async above(left: DirectoryIdentity): Promise<ListedDirectory> {
    const above = new ListedDirectory(await this.#directory.parent());
    await above.#page(undefined, false);
    if (above.identity === left) return above;
    await above[Symbol.asyncDispose]();
    throw new FileSystemError("open", "ESTALE");
  }

  /**
   * Removes entries, as many as fit into one time slice. The result has an element for each entry that was tried: the
   * errno, or undefined if the entry was removed.
   */
  async removeEach(entries: readonly Removable[]): Promise<readonly (Errno | undefined)[]> {
    const names = Buffer.concat(entries.flatMap(({ name, type }) => [type === "directory" ? SLASH : NUL, name, NUL]));
    const errors = await this.#directory.descriptor.nativeBytes("remove", (addon, fd) => addon.removeEach(fd, names));
    return Array.from({ length: errors.length / 4 }, (_, index) => {
      const error = errors.readUInt32LE(index * 4);
      return error === 0 ? undefined : errnoName(-error);
    });
  }

  /** Rejects with EXDEV if the entry is a mount point, which cannot be removed. */
  async checkMount(name: FilePath): Promise<void> {
    await (await this.#directory.openUnmounted("remove", name))[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#directory[Symbol.asyncDispose]();
  }

  async #page(from: DirectoryPosition | undefined, describes: boolean): Promise<DirectoryPage> {
    const position = positionBytes(from);
    const job = (addon: Addon, fd: number): Promise<Buffer | number> => addon.entriesIn(fd, position, describes);
    const { identity, ...page } = unpackDirectory(await this.#directory.descriptor.nativeBytes("list", job), describes);
    this.#identity = identity;
    return page;
  }

  /**
   * Returns the entry of a mount point with the attributes of the mounted root directory. If they cannot be read, for
   * example because the mount hangs, sets `errno` instead.
   */
  async #mounted(entry: DirectoryEntry): Promise<DirectoryEntry> {
    try {
      await using mounted = await this.#directory.openMounted("stat", entry.name);
      const attributes = await mounted.attributes("stat");
      return { ...entry, attributes, type: attributes.type };
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      return { ...entry, errno: error.errno };
    }
  }
}

/** Encodes a directory position for the addon. The start of the directory is encoded as an empty buffer. */
function positionBytes(position: DirectoryPosition | undefined): Buffer {
  const bytes = Buffer.alloc(position === undefined ? 0 : 8);
  if (position !== undefined) bytes.writeBigInt64LE(position);
  return bytes;
}
