import type { FileAttributes, FilePath, FileType } from "../attributes.ts";
import type { Errno } from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";
import { typeOfMode } from "../open/descriptor.ts";

export interface DirectoryEntry {
  readonly name: FilePath;
  /** Type of the entry. If the attributes are unknown, it comes from d_type of getdents64(2). */
  readonly type: FileType;
  readonly inode: bigint;
  /**
   * Attributes of the entry itself: links are not followed. Undefined if they were not requested or could not be read
   * (`errno`).
   */
  readonly attributes: FileAttributes | undefined;
  /** Target of a symbolic link; undefined for other types. */
  readonly linkTarget: Uint8Array | undefined;
  /** Why the attributes could not be read. */
  readonly errno: Errno | undefined;
  /** Whether the entry is a mount point. Known only if attributes were requested. */
  readonly isMountPoint: boolean;
  /** Position at which a listing continues after this entry. */
  readonly position: DirectoryPosition;
}

/** A position in a directory (d_off). It stays valid while other entries are added or removed. */
export type DirectoryPosition = bigint;

/** Some entries of a directory, in the kernel's order. */
export interface DirectoryPage {
  readonly entries: readonly DirectoryEntry[];
  /** Position of the next page; undefined if this is the last page. */
  readonly next: DirectoryPosition | undefined;
}

/** An entry to remove, with the type that it had when it was listed. */
export type Removable = Pick<DirectoryEntry, "name" | "type">;

/** Device and inode of a directory. */
export type DirectoryIdentity = string;

/**
 * Sizes of the structures that addon/directories.c packs: struct packed_directory, struct packed_entry, and the final
 * position.
 */
const HEAD_BYTES = 24;
const ENTRY_BYTES = 96;
const POSITION_BYTES = 8;
/** The errno for a mount point. The addon does not stat the mounted directory, because it may hang. */
const MOUNTED = "EXDEV";
const NS_PER_SECOND = 1_000_000_000n;

export interface PackedDirectory extends DirectoryPage {
  readonly identity: DirectoryIdentity;
}

/** Unpacks the result of the addon's entriesIn. Names and targets are views into `bytes`. */
export function unpackDirectory(bytes: Buffer, describes: boolean): PackedDirectory {
  const entries: DirectoryEntry[] = [];
  const end = bytes.length - POSITION_BYTES;
  for (let at = HEAD_BYTES; at < end;) {
    const nameAt = at + ENTRY_BYTES;
    const targetAt = nameAt + bytes.readUInt32LE(at);
    const next = targetAt + bytes.readUInt32LE(at + 4);
    const error = bytes.readUInt32LE(at + 8);
    const errno = error === 0 ? undefined : errnoName(-error);
    const attributes = describes && errno === undefined ? attributesAt(bytes, at) : undefined;
    entries.push({
      name: bytes.subarray(nameAt, targetAt),
      type: typeOfMode(bytes.readUInt32LE(at + 12)),
      inode: bytes.readBigUInt64LE(at + 32),
      attributes,
      linkTarget: next > targetAt ? bytes.subarray(targetAt, next) : undefined,
      errno: errno === MOUNTED ? undefined : errno,
      isMountPoint: errno === MOUNTED,
      position: bytes.readBigInt64LE(at + 24),
    });
    at = next;
  }
  const isAtEnd = bytes.readUInt32LE(16) !== 0;
  return {
    entries,
    next: isAtEnd ? undefined : bytes.readBigInt64LE(end),
    identity: bytes.toString("hex", 0, 16),
  };
}

function attributesAt(bytes: Buffer, at: number): FileAttributes {
  const mode = bytes.readUInt32LE(at + 12);
  const timeNs = (index: number): bigint =>
    bytes.readBigInt64LE(at + 56 + 8 * index) * NS_PER_SECOND + BigInt(bytes.readUInt32LE(at + 80 + 4 * index));
  return {
    type: typeOfMode(mode),
    mode: mode & 0o7777,
    uid: bytes.readUInt32LE(at + 16),
    gid: bytes.readUInt32LE(at + 20),
    inode: bytes.readBigUInt64LE(at + 32),
    sizeBytes: bytes.readBigUInt64LE(at + 40),
    links: bytes.readBigUInt64LE(at + 48),
    modifiedNs: timeNs(0),
    accessedNs: timeNs(1),
    changedNs: timeNs(2),
  };
}
