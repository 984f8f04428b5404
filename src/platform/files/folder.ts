import { constants } from "node:fs";
import { type FileHandle, mkdir, open, rmdir } from "node:fs/promises";
import { type FileOwner, FileSystemError } from "../../domain/index.ts";
import { ignoreFailure, step } from "./errors.ts";

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

export async function openFolderSync(folder: Buffer): Promise<FolderSync> {
  let handle: FileHandle | undefined;
  try {
    handle = await step("create", open(folder, constants.O_RDONLY | constants.O_DIRECTORY));
  } catch (error) {
    if (!(error instanceof FileSystemError) || error.errno !== UNREADABLE) throw error;
  }
  return {
    shortPath: handle === undefined ? folder : Buffer.from(`/proc/self/fd/${handle.fd}`),
    sync: async () => {
      try {
        if (handle !== undefined) await step("sync_folder", handle.sync());
      } catch (error) {
        if (!(error instanceof FileSystemError) || !NOT_SYNCABLE.has(error.errno)) throw error;
      }
    },
    [Symbol.asyncDispose]: async () => {
      if (handle !== undefined) await ignoreFailure(handle.close());
    },
  };
}

/** Creates a directory with exactly these attributes, forced to the disk, or none. */
export async function makeDirectory(path: Buffer, owner: FileOwner, mode: number): Promise<void> {
  await step("mkdir", mkdir(path, 0o700));
  try {
    // Not by its path: whoever owns the folder above could put a link in its place.
    await using made = await step(
      "mkdir",
      open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW),
    );
    await step("chown", made.chown(owner.uid, owner.gid));
    await step("chmod", made.chmod(mode));
    await using above = await openFolderSync(folderOf(path));
    await above.sync();
  } catch (error) {
    await ignoreFailure(rmdir(path));
    throw error;
  }
}
