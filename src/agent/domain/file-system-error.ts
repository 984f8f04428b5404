/** The step of a file operation that failed. */
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
  | "symlink";

/** A file operation failed: at which step, with which errno. */
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

/** A file system, as one mount shows it. */
export interface Mount {
  /** The same for all mounts of one file system. */
  readonly fileSystem: string;
  /** Where it is mounted; undefined: not known. */
  readonly path: string | undefined;
}

/** A file system does not answer. The operation's memory must not change until it has returned. */
export class FileSystemHung extends FileSystemError {
  /** Undefined: not known. */
  readonly mount: Mount | undefined;
  /** Resolves when the operation has returned. Undefined: it never began, because others like it hold all threads. */
  readonly returned: Promise<void> | undefined;

  constructor(step: FileStep, mount: Mount | undefined, returned: Promise<void> | undefined) {
    super(step, "ETIMEDOUT");
    this.mount = mount;
    this.returned = returned;
  }
}
