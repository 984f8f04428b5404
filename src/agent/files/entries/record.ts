import type { FileOwner, FilePath, GivenAttributes } from "../attributes.ts";

/** Entry types and flags of addon/entry.h. */
export const ENTRY = { file: 1, directory: 2, symlink: 3, hardLink: 4, attributes: 5 } as const;
const HAS_MODIFIED = 1;
const HAS_GROUP = 2;
const HAS_OWNER = 4;
const HAS_MODE = 8;
const PLAIN_MODE = 16;
const FOLLOWS_LINK = 32;
/** Size of struct entry in entry.h, and the offsets of its fields. */
const HEAD_BYTES = 48;
const [DATA_AT, TYPE_AT] = [4, 8];
const FIRST_BYTES = 16 * 1024;
const FILE_MODE = 0o644;
const DIRECTORY_MODE = 0o755;
const NS_PER_SECOND = 1_000_000_000n;
const NONE = new Uint8Array(0);

export type EntryType = (typeof ENTRY)[keyof typeof ENTRY];

/**
 * An entry to create. An undefined owner, group or mode gets this value:
 *
 * - If the entry replaces a file: the value of that file.
 * - Otherwise: the owner and group of `owner`, and mode 0644, or 0755 for a directory. In a setgid directory, the group
 *   of that directory.
 */
export interface NewEntry extends GivenAttributes {
  readonly path: FilePath;
  readonly type: EntryType;
  /** Default owner of a new entry. Ignored for `attributes` records, which set only the ids that are given. */
  readonly owner?: FileOwner | undefined;
  /**
   * Whether the mode has only permission bits. In this case an existing directory keeps its setuid, setgid and sticky
   * bits.
   */
  readonly hasPlainMode?: boolean;
  /** For a directory: whether an existing symbolic link to a directory in the tree is accepted in its place. */
  readonly followsLink?: boolean;
  /** Modification time in nanoseconds since 1970; the current time if undefined. */
  readonly modifiedNs?: bigint | undefined;
  /** The content of a file, or the target of a link. */
  readonly content?: Uint8Array;
  /** Size of a file whose content is not in `content`, because it is written to the open file piece by piece. */
  readonly sizeBytes?: bigint;
}

/** A buffer of entries in the format of addon/entry.h. */
export class Records {
  #bytes: Buffer;
  #end = 0;
  readonly #starts: number[] = [];

  constructor(likelyBytes: number = FIRST_BYTES) {
    this.#bytes = Buffer.allocUnsafe(likelyBytes);
  }

  /** Wraps records that are already packed into bytes, and finds where each record starts. */
  static from(bytes: Buffer): Records {
    const records = new Records(0);
    records.#bytes = bytes;
    while (records.#end < bytes.length) {
      const at = records.#end;
      records.#starts.push(at);
      records.#end += HEAD_BYTES + bytes.readUInt32LE(at) + bytes.readUInt32LE(at + DATA_AT);
    }
    return records;
  }

  get count(): number {
    return this.#starts.length;
  }

  get sizeBytes(): number {
    return this.#end;
  }

  add(entry: NewEntry): void {
    const { path, type, mode, uid, gid, owner, modifiedNs, content = NONE } = entry;
    const isLink = type === ENTRY.symlink || type === ENTRY.hardLink;
    const dataBytes = content.length + (isLink ? 1 : 0);
    let at = this.#begin(HEAD_BYTES + path.length + 1 + dataBytes);
    const seconds = modifiedNs === undefined ? 0n : floorSeconds(modifiedNs);
    const nanos = modifiedNs === undefined ? 0 : Number(modifiedNs - seconds * NS_PER_SECOND);
    const has =
      (modifiedNs === undefined ? 0 : HAS_MODIFIED) |
      (gid === undefined ? 0 : HAS_GROUP) |
      (uid === undefined ? 0 : HAS_OWNER) |
      (mode === undefined ? 0 : HAS_MODE) |
      (entry.hasPlainMode === true ? PLAIN_MODE : 0) |
      (entry.followsLink === true ? FOLLOWS_LINK : 0);
    const packed = this.#bytes;
    const fullMode = mode ?? (type === ENTRY.directory ? DIRECTORY_MODE : FILE_MODE);
    for (const value of [
      path.length + 1,
      dataBytes,
      type,
      has,
      fullMode,
      uid ?? owner?.uid ?? 0,
      gid ?? owner?.gid ?? 0,
      nanos,
    ])
      at = packed.writeUInt32LE(value, at);
    at = packed.writeBigInt64LE(seconds, at);
    at = packed.writeBigInt64LE(entry.sizeBytes ?? BigInt(content.length), at);
    packed.set(path, at);
    at = packed.writeUInt8(0, at + path.length);
    packed.set(content, at);
    if (isLink) packed.writeUInt8(0, at + content.length);
  }

  /**
   * Adds a second record for a directory, which only sets its attributes. It is applied after the content of the
   * directory was written.
   */
  addAttributesOf(records: Records, index: number): void {
    const record = records.slice(index, index + 1);
    const at = this.#begin(record.length);
    record.copy(this.#bytes, at);
    this.#bytes.writeUInt32LE(ENTRY.attributes, at + TYPE_AT);
  }

  type(index: number): EntryType {
    return this.#bytes.readUInt32LE(this.#start(index) + TYPE_AT) as EntryType;
  }

  /** Path of a record, as a view into the buffer. */
  path(index: number): FilePath {
    const at = this.#start(index);
    return this.#bytes.subarray(at + HEAD_BYTES, at + HEAD_BYTES + this.#bytes.readUInt32LE(at) - 1);
  }

  dataBytes(index: number): number {
    return this.#bytes.readUInt32LE(this.#start(index) + DATA_AT);
  }

  /** A view of the records whose indexes are at least `from` and less than `to`. */
  slice(from: number, to: number = this.count): Buffer {
    return this.#bytes.subarray(this.#start(from), this.#start(to));
  }

  #start(index: number): number {
    return this.#starts[index] ?? this.#end;
  }

  #begin(sizeBytes: number): number {
    const at = this.#end;
    this.#starts.push(at);
    this.#end += sizeBytes;
    if (this.#end > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(2 * this.#bytes.length, this.#end));
      this.#bytes.copy(larger, 0, 0, at);
      this.#bytes = larger;
    }
    return at;
  }
}

/** Packs one entry in the format of addon/entry.h, for calls that take a single record. */
export function packEntry(entry: NewEntry): Buffer {
  const records = new Records(HEAD_BYTES + entry.path.length + (entry.content?.length ?? 0) + 2);
  records.add(entry);
  return records.slice(0);
}

function floorSeconds(ns: bigint): bigint {
  const seconds = ns / NS_PER_SECOND;
  return ns < 0n && seconds * NS_PER_SECOND !== ns ? seconds - 1n : seconds;
}
