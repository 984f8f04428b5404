import { constants } from "node:fs";
import { type FileHandle, open, rename, unlink } from "node:fs/promises";
import { FileSystemError } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import { ignoreFailure, step } from "./errors.ts";
import { folderOf } from "./folder.ts";
import { type Placement, PRIVATE_MODE, temporaryPath } from "./named-file.ts";

/** What creates files without a name needs of the addon. */
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
export async function createUnnamed(folder: Buffer, linker: Linker): Promise<Placement | undefined> {
  let handle: FileHandle;
  try {
    handle = await open(folder, constants.O_WRONLY | O_TMPFILE, PRIVATE_MODE);
  } catch {
    return undefined;
  }
  // "/" exists: who may link is told so, who may not is told otherwise.
  if ((await link(linker, handle, ROOT)) !== "EEXIST") {
    await ignoreFailure(handle.close());
    return undefined;
  }
  return {
    handle,
    place: async (path, exclusive, shortFolder) => {
      const errno = await link(linker, handle, path);
      if (errno === undefined) return;
      if (exclusive || errno !== "EEXIST") throw new FileSystemError("place", errno);
      const own = temporaryPath(folderOf(path));
      const temporary = own.length <= PATH_BYTES ? own : temporaryPath(shortFolder);
      await replace(linker, handle, path, temporary);
    },
    remove: () => Promise.resolve(),
  };
}

/** A link cannot replace anything, a rename can: for a moment the file has a temporary name. */
async function replace(linker: Linker, handle: FileHandle, path: Buffer, temporary: Buffer): Promise<void> {
  const errno = await link(linker, handle, temporary);
  if (errno !== undefined) throw new FileSystemError("place", errno);
  try {
    await step("place", rename(temporary, path));
  } catch (error) {
    await ignoreFailure(unlink(temporary));
    throw error;
  }
}

/** The errno of a failed link; undefined when it was made. */
async function link(linker: Linker, handle: FileHandle, path: Buffer): Promise<string | undefined> {
  const result = await linker.linkDescriptor(handle.fd, path);
  return result < 0 ? errnoName(result) : undefined;
}
