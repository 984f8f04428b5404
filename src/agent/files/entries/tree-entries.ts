import type { Errno, FileSystemError, Mount } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import type { OpenDirectory } from "../open/directory.ts";
import { failureOf } from "../threads/steps.ts";

/** Flags of addon/tree.c. */
export const OVERWRITE = 1;
export const NO_SYMLINKS = 2;
export const SYNC = 4;
const NO_MOUNTS = 8;

/**
 * Creates entries below a directory from records (record.ts), as many as fit into one time slice. The result has the
 * error, or undefined, for each entry that was tried. Files on the file systems of `root` and `synced` are not synced
 * one by one; the caller syncs these file systems later.
 */
export async function putEach(
  root: OpenDirectory,
  records: Buffer,
  flags: number,
  temporary: Uint8Array,
  mount: Mount | undefined,
  synced: OpenDirectory,
): Promise<readonly (FileSystemError | undefined)[]> {
  const how = within(root, flags, mount);
  const later = synced.descriptor;
  const job = (addon: Addon, fd: number): Promise<Buffer | number> =>
    addon.writeEntries(fd, records, how, temporary, later.fd);
  const errors = await root.descriptor.nativeBytes("create", job, mount, [later]);
  return Array.from({ length: errors.length / 4 }, (_, index) => {
    const error = errors.readInt32LE(index * 4);
    return error === 0 ? undefined : failureOf(error, "create");
  });
}

/**
 * Reads small files below a directory, as many as fit into one time slice. `paths` has a NUL after each path. Returns
 * the bytes of each file, or its errno: EFBIG if the file is larger than `eachBytes`.
 */
export async function readEach(
  root: OpenDirectory,
  paths: Buffer,
  eachBytes: number,
  roomBytes: number,
  mount: Mount | undefined,
): Promise<(Buffer | Errno)[]> {
  const how = within(root, NO_SYMLINKS, mount);
  const job = (addon: Addon, fd: number): Promise<Buffer | number> =>
    addon.readEntries(fd, paths, how, eachBytes, roomBytes);
  const bytes = await root.descriptor.nativeBytes("read", job, mount);
  const results: (Buffer | Errno)[] = [];
  for (let at = 0; at < bytes.length;) {
    const size = bytes.readInt32LE(at);
    at += 4;
    results.push(size < 0 ? errnoName(size) : bytes.subarray(at, at + size));
    at += Math.max(0, size);
  }
  return results;
}

/**
 * Adds NO_MOUNTS if the mounts below `root` are known and `mount` is undefined. With this flag, a lookup that reaches a
 * mount point fails. Otherwise a symbolic link could lead it into a mount that hangs.
 */
function within(root: OpenDirectory, flags: number, mount: Mount | undefined): number {
  return root.refusesMounts(mount) ? flags | NO_MOUNTS : flags;
}
