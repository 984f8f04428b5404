import type { Errno, FileSystemError, Mount } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import type { OpenFolder } from "../open/folder.ts";
import { failureOf } from "../threads/steps.ts";

/** Flags of addon/tree.c. */
export const OVERWRITE = 1;
export const NO_SYMLINKS = 2;
export const SYNC = 4;
const NO_MOUNTS = 8;

/**
 * Makes entries beneath a directory, given by records (record.ts), as many as it can in a moment. Returns the error of
 * each that it tried; undefined: it is there. `synced`: one whose file system is synced later, as this one's is.
 */
export async function putEach(
  root: OpenFolder,
  records: Buffer,
  flags: number,
  temporary: Uint8Array,
  mount: Mount | undefined,
  synced: OpenFolder,
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
 * Reads small files beneath a directory, given by paths with a NUL each, as many as it can in a moment. Returns each
 * one's bytes, or why they cannot be read: EFBIG for more than `eachBytes`.
 */
export async function readEach(
  root: OpenFolder,
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

/** A mount that was not named, such as behind a link, is not entered. */
function within(root: OpenFolder, flags: number, mount: Mount | undefined): number {
  return root.refusesMounts(mount) ? flags | NO_MOUNTS : flags;
}
