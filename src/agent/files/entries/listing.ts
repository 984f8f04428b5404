import type { FileAttributes, FilePath, FileType } from "../attributes.ts";
import type { Errno } from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";
import { typeOfMode } from "../open/descriptor.ts";

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

/** Device and inode of a folder. */
export type FolderIdentity = string;

/** Sizes of what addon/folders.c packs: struct packed_folder, struct packed_entry, and the position behind them. */
const HEAD_BYTES = 24;
const ENTRY_BYTES = 96;
const POSITION_BYTES = 8;
/** A mount point: nothing has looked at what is mounted there. */
const MOUNTED = "EXDEV";
const NS_PER_SECOND = 1_000_000_000n;

/** A batch of a folder's entries, and which folder it is. */
export interface PackedFolder extends FolderPage {
  readonly identity: FolderIdentity;
}

/** Reads what the addon's entriesIn gave. Names and targets are views. */
export function unpackFolder(bytes: Buffer, describes: boolean): PackedFolder {
  const entries: FolderEntry[] = [];
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
