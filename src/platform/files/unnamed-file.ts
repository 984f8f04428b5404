import { constants } from "node:fs";
import { type FileHandle, open, rename, unlink } from "node:fs/promises";
import { FileSystemError } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import { folderOf } from "./folder.ts";
import { type Placement, PRIVATE_MODE, temporaryPath } from "./named-file.ts";
import type { FileThreads } from "./threads.ts";

/** What placing files without a name needs of the addon. */
export type Linker = Pick<Addon, "linkDescriptor">;

/** O_TMPFILE of open(2), which Node has no constant for. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;
/** Longest path: PATH_MAX without its terminator. */
const PATH_BYTES = 4095;
const ROOT = Buffer.from("/");

/**
 * Holds the content in a file without a name (O_TMPFILE of open(2)): whatever happens to the agent before it is placed,
 * nothing is left of it. Undefined where the file system has no such files, or where the kernel would not let it be
 * placed later on.
 */
export async function createUnnamed(
  folder: Buffer,
  linker: Linker,
  threads: FileThreads,
): Promise<Placement | undefined> {
  const flags = constants.O_WRONLY | O_TMPFILE;
  const handle = await threads.step("create", () => open(folder, flags, PRIVATE_MODE)).catch(() => undefined);
  if (handle === undefined) return undefined;
  const file = new UnnamedFile(handle, linker, threads);
  if (await file.canBePlaced()) return file;
  await threads.attempt(() => handle.close());
  return undefined;
}

class UnnamedFile implements Placement {
  readonly handle: FileHandle;
  readonly #linker: Linker;
  readonly #threads: FileThreads;

  constructor(handle: FileHandle, linker: Linker, threads: FileThreads) {
    this.handle = handle;
    this.#linker = linker;
    this.#threads = threads;
  }

  /** "/" exists: who may link is told so, who may not is told otherwise. */
  async canBePlaced(): Promise<boolean> {
    return (await this.#link(ROOT)) === "EEXIST";
  }

  async place(path: Buffer, exclusive: boolean, shortFolder: Buffer): Promise<void> {
    const errno = await this.#link(path);
    if (errno === undefined) return;
    if (exclusive || errno !== "EEXIST") throw new FileSystemError("place", errno);
    const temporary = temporaryPath(folderOf(path));
    await this.#replace(path, temporary.length <= PATH_BYTES ? temporary : temporaryPath(shortFolder));
  }

  remove(): Promise<void> {
    return Promise.resolve();
  }

  /** A link cannot replace anything, a rename can: for a moment the file has a temporary name. */
  async #replace(path: Buffer, temporary: Buffer): Promise<void> {
    const errno = await this.#link(temporary);
    if (errno !== undefined) throw new FileSystemError("place", errno);
    try {
      await this.#threads.step("place", () => rename(temporary, path));
    } catch (error) {
      await this.#threads.attempt(() => unlink(temporary));
      throw error;
    }
  }

  /** The errno of a failed link; undefined when it was made. */
  async #link(path: Buffer): Promise<string | undefined> {
    const result = await this.#threads.step("place", () => this.#linker.linkDescriptor(this.handle.fd, path));
    return result < 0 ? errnoName(result) : undefined;
  }
}
