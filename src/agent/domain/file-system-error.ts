/** The steps of file operations. Errors name the step that failed. */
export type FileStep =
  | "open_beneath"
  | "stat"
  | "statfs"
  | "readlink"
  | "open"
  | "read"
  | "create"
  | "write"
  | "chown"
  | "chmod"
  | "utime"
  | "sync"
  | "place"
  | "sync_folder"
  | "mkdir"
  | "list"
  | "remove"
  | "rename"
  | "symlink"
  | "watch";

/** A failed file operation, with its step and errno. */
export class FileSystemError extends Error {
  override readonly name = "FileSystemError";
  readonly step: FileStep;
  /** Symbolic errno, such as "ENOENT". */
  readonly errno: string;

  constructor(step: FileStep, errno: string, cause?: unknown) {
    super(`${step}: ${errno}`, cause === undefined ? undefined : { cause });
    this.step = step;
    this.errno = errno;
  }
}

/** A mount in the guest. If a file system hangs, all of its mounts hang. */
export interface Mount {
  /** Identifies the file system. All mounts of a file system have the same value. */
  readonly fileSystem: string;
  /** Mount point; undefined if unknown. */
  readonly path: string | undefined;
}

/**
 * The error if a file system does not respond. The memory of the hung operation must not be reused until `returned`
 * resolves.
 */
export class FileSystemHung extends FileSystemError {
  /** The mount that does not respond; undefined if it is unknown. */
  readonly mount: Mount | undefined;
  /**
   * Resolves when the operation that hangs has returned. Undefined if the operation was not even started, because other
   * operations that hang occupy all threads.
   */
  readonly returned: Promise<void> | undefined;

  constructor(step: FileStep, mount: Mount | undefined, returned: Promise<void> | undefined) {
    super(step, "ETIMEDOUT");
    this.mount = mount;
    this.returned = returned;
  }
}
