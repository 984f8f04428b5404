import { type BigIntStats, constants } from "node:fs";
import type { FileAttributes, FileType } from "../../domain/index.ts";

const TYPES: ReadonlyMap<number, FileType> = new Map([
  [constants.S_IFREG, "regular"],
  [constants.S_IFDIR, "directory"],
  [constants.S_IFLNK, "symlink"],
  [constants.S_IFIFO, "fifo"],
  [constants.S_IFSOCK, "socket"],
  [constants.S_IFCHR, "character_device"],
  [constants.S_IFBLK, "block_device"],
]);

/** What stat(2) says, in the terms of the domain. */
export function fileAttributes(stats: BigIntStats): FileAttributes {
  const mode = Number(stats.mode);
  return {
    type: TYPES.get(mode & constants.S_IFMT) ?? "unknown",
    // Node reads these unsigned fields as signed.
    sizeBytes: BigInt.asUintN(64, stats.size),
    inode: BigInt.asUintN(64, stats.ino),
    links: BigInt.asUintN(64, stats.nlink),
    mode: mode & 0o7777,
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    modifiedNs: stats.mtimeNs,
    accessedNs: stats.atimeNs,
    changedNs: stats.ctimeNs,
  };
}
