import { type Errno, FileSystemError } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import type { FilePath } from "../attributes.ts";
import type { OpenFolder } from "../open/folder.ts";
import {
  type FolderEntry,
  type FolderIdentity,
  type FolderPage,
  type FolderPosition,
  type Removable,
  unpackFolder,
} from "./listing.ts";

const [SLASH, NUL] = [Buffer.from("/"), Buffer.from([0])];

/** An open directory that a walk lists or empties. It owns the directory. Everything rejects with FileSystemError. */
export class ListedFolder implements AsyncDisposable {
  readonly #folder: OpenFolder;
  #identity: FolderIdentity = "";

  constructor(folder: OpenFolder) {
    this.#folder = folder;
  }

  /** Which directory it is, since its last read. */
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

  /** Opens a directory in it; a mount point only with `crossesMounts` (EXDEV). */
  async enter(name: FilePath, crossesMounts: boolean): Promise<ListedFolder> {
    return new ListedFolder(await this.#folder.enter(name, crossesMounts));
  }

  /** Opens the parent directory, which must be the one that the walk came from: ESTALE if this one was moved. */
  async above(left: FolderIdentity): Promise<ListedFolder> {
    const above = new ListedFolder(await this.#folder.parent());
    await above.#page(undefined, false);
    if (above.identity === left) return above;
    await above[Symbol.asyncDispose]();
    throw new FileSystemError("open", "ESTALE");
  }

  /** Removes as many entries as it can in a moment. Returns an errno for each that it tried; undefined: removed. */
  async removeEach(entries: readonly Removable[]): Promise<readonly (Errno | undefined)[]> {
    const names = Buffer.concat(entries.flatMap(({ name, type }) => [type === "directory" ? SLASH : NUL, name, NUL]));
    const errors = await this.#folder.descriptor.nativeBytes("remove", (addon, fd) => addon.removeEach(fd, names));
    return Array.from({ length: errors.length / 4 }, (_, index) => {
      const error = errors.readUInt32LE(index * 4);
      return error === 0 ? undefined : errnoName(-error);
    });
  }

  /** Refuses a mount point, which cannot be removed by itself: EXDEV. */
  async checkMount(name: FilePath): Promise<void> {
    await (await this.#folder.openUnmounted("remove", name))[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#folder[Symbol.asyncDispose]();
  }

  async #page(from: FolderPosition | undefined, describes: boolean): Promise<FolderPage> {
    const position = positionBytes(from);
    const job = (addon: Addon, fd: number): Promise<Buffer | number> => addon.entriesIn(fd, position, describes);
    const { identity, ...page } = unpackFolder(await this.#folder.descriptor.nativeBytes("list", job), describes);
    this.#identity = identity;
    return page;
  }

  /** Describes what is mounted at an entry. If that does not answer, the entry gets the errno. */
  async #mounted(entry: FolderEntry): Promise<FolderEntry> {
    try {
      await using mounted = await this.#folder.openMounted("stat", entry.name);
      const attributes = await mounted.attributes("stat");
      return { ...entry, attributes, type: attributes.type };
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      return { ...entry, errno: error.errno };
    }
  }
}

/** As the addon takes it: empty for the beginning. */
function positionBytes(position: FolderPosition | undefined): Buffer {
  const bytes = Buffer.alloc(position === undefined ? 0 : 8);
  if (position !== undefined) bytes.writeBigInt64LE(position);
  return bytes;
}
