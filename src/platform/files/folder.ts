import { constants } from "node:fs";
import { type FileHandle, mkdir, open, rmdir } from "node:fs/promises";
import { type FileOwner, FileSystemError } from "../../domain/index.ts";
import type { FileThreads } from "./threads.ts";

const SLASH = 0x2f;
/** A folder that may be entered but not listed cannot be opened, nor be synced. */
const UNREADABLE = "EACCES";
/** fsync(2) of file systems that keep no folders to be synced. */
const NOT_SYNCABLE: ReadonlySet<string> = new Set(["EINVAL", "ENOTSUP", "ENOSYS"]);

/** The folder that a path's last name is in. */
export function folderOf(path: Buffer): Buffer {
  const slash = path.lastIndexOf(SLASH);
  return path.subarray(0, slash === 0 ? 1 : slash);
}

/** Forces the entries of a folder to the disk; opened beforehand, while a failure has no consequences yet. */
export interface FolderSync extends AsyncDisposable {
  /** Another path of the folder, short whatever its own; its own where there is no other. */
  readonly shortPath: Buffer;
  sync(): Promise<void>;
}

export async function openFolderSync(folder: Buffer, threads: FileThreads): Promise<FolderSync> {
  let handle: FileHandle | undefined;
  try {
    handle = await threads.step("create", () => open(folder, constants.O_RDONLY | constants.O_DIRECTORY));
  } catch (error) {
    if (!(error instanceof FileSystemError) || error.errno !== UNREADABLE) throw error;
  }
  return {
    shortPath: handle === undefined ? folder : Buffer.from(`/proc/self/fd/${handle.fd}`),
    sync: async () => {
      try {
        if (handle !== undefined) await threads.step("sync_folder", () => handle.sync());
      } catch (error) {
        if (!(error instanceof FileSystemError) || !NOT_SYNCABLE.has(error.errno)) throw error;
      }
    },
    [Symbol.asyncDispose]: async () => {
      if (handle !== undefined) await threads.attempt(() => handle.close());
    },
  };
}

/** Creates a directory with exactly these attributes, forced to the disk, or none. */
export async function makeDirectory(path: Buffer, owner: FileOwner, mode: number, threads: FileThreads): Promise<void> {
  await threads.step("mkdir", () => mkdir(path, 0o700));
  try {
    await setDirectoryAttributes(path, owner, mode, threads);
    await using above = await openFolderSync(folderOf(path), threads);
    await above.sync();
  } catch (error) {
    await threads.attempt(() => rmdir(path));
    throw error;
  }
}

/** Not by its path: whoever owns the folder above could put a link in its place. */
async function setDirectoryAttributes(
  path: Buffer,
  owner: FileOwner,
  mode: number,
  threads: FileThreads,
): Promise<void> {
  const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
  const made = await threads.step("mkdir", () => open(path, flags));
  try {
    await threads.step("chown", () => made.chown(owner.uid, owner.gid));
    await threads.step("chmod", () => made.chmod(mode));
  } finally {
    await threads.attempt(() => made.close());
  }
}
