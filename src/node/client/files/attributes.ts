import type { FileType, StatPathResponse } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { dateOf, nanosOf } from "../times.ts";

/** Attributes of a path in the sandbox (message StatPathResponse, stat(2)). A plain object: JSON.stringify takes it. */
export interface PathAttributes {
  readonly type: FileType;
  /** In bytes; above 2^53 the nearest number. */
  readonly size: number;
  /** Permission bits (st_mode & 07777). */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Last change of the content. A time beyond Date's range (the year 275760) becomes the nearest, here and below. */
  readonly mtime?: Date;
  /** Nanoseconds within its second: a Date ends at the millisecond. */
  readonly mtimeNanos: number;
  /** Last access. */
  readonly atime?: Date;
  readonly atimeNanos: number;
  /** Last change of content or attributes. */
  readonly ctime?: Date;
  readonly ctimeNanos: number;
  /** Inode number in decimal: a number does not hold all of them. */
  readonly inode: string;
  /** Number of hard links. */
  readonly links: number;
  /** Target of a symbolic link, with `noFollow`; bytes, as it need not be UTF-8. */
  readonly linkTarget?: Buffer;
}

/** The message as a plain object. */
export function attributesOf(message: StatPathResponse): PathAttributes {
  const { type, size, mode, uid, gid, mtime, atime, ctime, inode, links, linkTarget } = message;
  return {
    type,
    size: Number(size),
    mode,
    uid,
    gid,
    ...(mtime && { mtime: dateOf(mtime) }),
    mtimeNanos: nanosOf(mtime),
    ...(atime && { atime: dateOf(atime) }),
    atimeNanos: nanosOf(atime),
    ...(ctime && { ctime: dateOf(ctime) }),
    ctimeNanos: nanosOf(ctime),
    inode: String(inode),
    links: Number(links),
    ...(linkTarget.length > 0 && { linkTarget: Buffer.from(linkTarget) }),
  };
}
