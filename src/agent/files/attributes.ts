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

export interface FileOwner {
  readonly uid: number;
  readonly gid: number;
}

/** Attributes that a request sets. An undefined attribute stays unchanged; in a new entry it gets the default. */
export interface GivenAttributes {
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
}

/** Attributes of a file system object (stat(2)). */
export interface FileAttributes extends FileOwner {
  readonly type: FileType;
  readonly sizeBytes: bigint;
  /** Permission bits with the setuid, setgid and sticky bits (st_mode & 07777). */
  readonly mode: number;
  /** Time of the last modification. All times are in nanoseconds since 1970, and negative before 1970. */
  readonly modifiedNs: bigint;
  readonly accessedNs: bigint;
  readonly changedNs: bigint;
  readonly inode: bigint;
  readonly links: bigint;
  /** Whether the file has holes: it has fewer blocks than its size requires. Set only for open files. */
  readonly hasHoles?: boolean;
}

/**
 * A path in the form that the kernel accepts: any bytes except NUL, not necessarily UTF-8. The path is absolute, except
 * in a DirectoryView.
 */
export type FilePath = Uint8Array;
