import type { FileAttributes, FilePath, FileType } from "../attributes.ts";
import type { Errno } from "../../domain/index.ts";

/** An entry of a folder. */
export interface FolderEntry {
  readonly name: FilePath;
  /** From the folder's own listing if the attributes are not known. */
  readonly type: FileType;
  readonly inode: bigint;
  /** Of the entry itself: links are not followed. Undefined if `errno` says why, or if nobody asked for them. */
  readonly attributes: FileAttributes | undefined;
  /** Of a symbolic link. */
  readonly linkTarget: Uint8Array | undefined;
  /** Why the attributes cannot be read. */
  readonly errno: Errno | undefined;
  /** The entry is a mount point. Known only if attributes were asked for. */
  readonly isMountPoint: boolean;
  /** Position of the next entry. */
  readonly position: FolderPosition;
}

/** A place in a folder; it stays the same for entries that stay. */
export type FolderPosition = bigint;

/** Some entries of a folder, in the kernel's order. */
export interface FolderPage {
  readonly entries: readonly FolderEntry[];
  /** Where the next page begins; undefined: there is none. */
  readonly next: FolderPosition | undefined;
}

/** A name to be removed, and its type when it was read. */
export type Removable = Pick<FolderEntry, "name" | "type">;

/** An open folder. Names are single names, and no link is followed. Everything rejects with FileSystemError. */
export interface OpenFolder extends AsyncDisposable {
  /** The next entries, without those that were removed in the meantime. Undefined: from the beginning. */
  read(from: FolderPosition | undefined): Promise<FolderPage>;
  /** The same, with no more than names and types. */
  readNames(from: FolderPosition | undefined): Promise<FolderPage>;
  /** Opens a folder in it; a mount point only with `crossesMounts` (EXDEV). */
  enter(name: FilePath, crossesMounts: boolean): Promise<OpenFolder>;
  /** Opens the parent folder, which must be the one that the walk came from: ESTALE if this folder was moved. */
  above(left: FolderIdentity): Promise<OpenFolder>;
  /** Which folder it is, as of its last read. */
  readonly identity: FolderIdentity;
  /** Removes as many entries as it can in a moment. Returns an errno for each that it tried; undefined: removed. */
  removeEach(entries: readonly Removable[]): Promise<readonly (Errno | undefined)[]>;
  /** Refuses a mount point, which cannot be removed by itself: EXDEV. */
  checkMount(name: FilePath): Promise<void>;
  makeLink(name: FilePath, target: Uint8Array, uid: number, gid: number): Promise<void>;
  /**
   * Moves an entry to another folder of the same platform; EEXIST where that has one of the name, and `exclusive` is
   * set.
   */
  move(name: FilePath, target: OpenFolder, newName: FilePath, exclusive: boolean): Promise<void>;
}

/** Device and inode of a folder. */
export type FolderIdentity = string;

/** An open entry of any type, of which only attributes are read and set. */
export interface OpenEntry extends AsyncDisposable {
  attributes(): Promise<FileAttributes>;
  setOwner(uid: number | undefined, gid: number | undefined): Promise<void>;
  setMode(mode: number): Promise<void>;
  /** In nanoseconds since 1970. */
  setModified(modifiedNs: bigint): Promise<void>;
}
