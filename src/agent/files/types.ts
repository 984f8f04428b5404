import { type FileStep, FileSystemError, FileSystemHung } from "../domain/index.ts";
import type { FileAttributes, FileOwner, FilePath, FileType } from "./attributes.ts";
import type { OpenEntry, OpenFolder } from "./tree/types.ts";

/** Resolves once a failed operation no longer uses its memory: at once, unless its file system hangs. */
export async function operationReturned(error: unknown): Promise<void> {
  if (error instanceof FileSystemHung) await error.returned;
}

/** A path led out of the folder beneath which it had to stay, or over a symbolic link that may not be followed. */
export class PathEscapes extends FileSystemError {
  /** None is allowed. */
  readonly noSymlinks: boolean;

  constructor(step: FileStep, errno: string, noSymlinks: boolean) {
    super(step, errno);
    this.noSymlinks = noSymlinks;
  }
}

/** An open regular file. */
export interface ReadableFile {
  /** As of the opening. */
  readonly attributes: FileAttributes;
  /**
   * Reads into the start of `target`, from `offsetBytes` or where the last read ended. Resolves with the number of
   * bytes read: 0 at the end of the file, and where a file such as /proc/kmsg has nothing now.
   */
  read(target: Uint8Array, offsetBytes: bigint | undefined): Promise<number>;
  /** Never rejects. */
  close(): Promise<void>;
}

/** How a new file is written. */
export interface NewFileOptions {
  /** Blocks of zeros become holes. */
  readonly sparse: boolean;
  readonly sha256: boolean;
}

/** A new file before it has its path: nobody sees it there before `place`. Call the methods one after the other. */
export interface NewFile {
  /** Appends the pieces, one after another. The caller may reuse them, and the array, once it resolves. */
  write(pieces: readonly Uint8Array[]): Promise<void>;
  /** SHA-256 of all that was written; undefined where the file was created without. Call it once. */
  sha256(): Uint8Array | undefined;
  /** Sets owner, then mode (a change of owner clears setuid bits); both exactly, whatever the umask. */
  setAttributes(owner: FileOwner, mode: number): Promise<void>;
  /** Sets the time of the last modification, in nanoseconds since 1970, to the microsecond. The last access is now. */
  setModified(modifiedNs: bigint): Promise<void>;
  /** Forces content and attributes to the disk. */
  sync(): Promise<void>;
  /** Gives the file its path, atomically, and syncs the folder. Replaces what is there; EEXIST with `exclusive`. */
  place(path: FilePath, exclusive: boolean): Promise<void>;
  /** Closes the file, and removes it unless it was placed. Never rejects. */
  dispose(): Promise<void>;
}

/** Files and folders by their paths. Everything rejects with FileSystemError and never blocks the event loop. */
export interface FileTree {
  /** @param noFollow describe a symbolic link itself */
  stat(path: FilePath, noFollow: boolean): Promise<FileAttributes>;
  /** Target of a symbolic link, as stored; EINVAL for anything else. */
  readLink(path: FilePath): Promise<Uint8Array>;
  /** Opens a regular file, without waiting for others, and nothing else: opening a device or FIFO may have effects. */
  openRegular(path: FilePath): Promise<ReadableFile | { readonly notRegular: FileType }>;
  /** Creates a file of mode 0600 in a folder. */
  create(folder: FilePath, options: NewFileOptions): Promise<NewFile>;
  /** Creates a directory; mode exactly, whatever the umask. */
  makeDirectory(path: FilePath, owner: FileOwner, mode: number): Promise<void>;
  /** Removes an empty directory. Never rejects: what cannot be removed stays. */
  removeDirectory(path: FilePath): Promise<void>;
  /** Opens a folder: to read it, or only to reach its entries. Needs openat2(2): AgentError UNIMPLEMENTED without. */
  openFolder(path: FilePath, reads: boolean): Promise<OpenFolder>;
  /** Opens an entry of any type, without effects on it. */
  openEntry(path: FilePath, noFollow: boolean): Promise<OpenEntry>;
}

/**
 * The tree beneath a folder, by relative paths. A path that leads out of it rejects with PathEscapes, even if somebody
 * changes the tree meanwhile. Dispose of it after everything that was opened through it.
 */
interface FolderView extends FileTree, AsyncDisposable {}

/** The file system of the guest. */
export interface FileSystem extends FileTree {
  /**
   * A view of a folder, whose own path is followed as usual.
   *
   * @param noSymlinks follow no symbolic link beneath it either
   * @throws AgentError UNIMPLEMENTED where the kernel cannot do that
   */
  beneath(root: FilePath, noSymlinks: boolean): Promise<FolderView>;
}
