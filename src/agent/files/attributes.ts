/** Type of a file system object (st_mode & S_IFMT, inode(7)). */
export type FileType =
  | "regular"
  | "directory"
  | "symlink"
  | "fifo"
  | "socket"
  | "character_device"
  | "block_device"
  | "unknown";

/** Owner and group of a file. */
export interface FileOwner {
  readonly uid: number;
  readonly gid: number;
}

/** Attributes that a request gives an entry; what is undefined stays, or gets its default. */
export interface GivenAttributes {
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
}

/** Attributes of a file system object (stat(2)). */
export interface FileAttributes extends FileOwner {
  readonly type: FileType;
  readonly sizeBytes: bigint;
  /** st_mode & 07777. */
  readonly mode: number;
  /** Times in nanoseconds since 1970; negative before. */
  readonly modifiedNs: bigint;
  readonly accessedNs: bigint;
  readonly changedNs: bigint;
  readonly inode: bigint;
  readonly links: bigint;
  /** It has fewer blocks than its size needs. Known of an open file only. */
  readonly hasHoles?: boolean;
}

/** A path as the kernel takes it: without NUL, not necessarily UTF-8. Absolute; relative in a FolderView. */
export type FilePath = Uint8Array;
