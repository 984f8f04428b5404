import type { FilePath } from "../attributes.ts";

/** Types and flags of addon/tree.c. */
export const ENTRY = { file: 1, folder: 2, symlink: 3, hardLink: 4, attributes: 5 } as const;
export const OVERWRITE = 1;
export const NO_SYMLINKS = 2;
export const SYNC = 4;
export const NO_MOUNTS = 8;
const HAS_MODIFIED = 1;
const HAS_GROUP = 2;
const HAS_OWNER = 4;
const HAS_MODE = 8;
/** Size of tree.c's struct entry. */
const HEAD_BYTES = 40;
const NS_PER_SECOND = 1_000_000_000n;

/** An entry to be made in one step. */
export interface SmallEntry {
  readonly path: FilePath;
  readonly type: (typeof ENTRY)[keyof typeof ENTRY];
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Its group was asked for, and is not that of a setgid folder. */
  readonly hasGroup: boolean;
  /** Its owner and its mode were asked for, and are not those of a file that is there. */
  readonly hasOwner?: boolean;
  readonly hasMode?: boolean;
  /** In nanoseconds since 1970; undefined: now. */
  readonly modifiedNs: bigint | undefined;
  /** A file's bytes, or a link's target. */
  readonly content: Uint8Array;
}

/** Packs entries as addon/tree.c reads them. */
export function packEntries(entries: readonly SmallEntry[]): Buffer {
  let sizeBytes = 0;
  for (const { path, content } of entries) sizeBytes += HEAD_BYTES + path.length + content.length + 2;
  const packed = Buffer.allocUnsafe(sizeBytes);
  let at = 0;
  for (const { path, type, content, modifiedNs, ...entry } of entries) {
    const isLink = type === ENTRY.symlink || type === ENTRY.hardLink;
    const seconds = modifiedNs === undefined ? 0n : floorSeconds(modifiedNs);
    const nanos = modifiedNs === undefined ? 0 : Number(modifiedNs - seconds * NS_PER_SECOND);
    const asked = (entry.hasGroup ? HAS_GROUP : 0) | (entry.hasOwner ? HAS_OWNER : 0) | (entry.hasMode ? HAS_MODE : 0);
    const has = (modifiedNs === undefined ? 0 : HAS_MODIFIED) | asked;
    const dataBytes = content.length + (isLink ? 1 : 0);
    for (const value of [path.length + 1, dataBytes, type, has, entry.mode, entry.uid, entry.gid, nanos])
      at = packed.writeUInt32LE(value, at);
    at = packed.writeBigInt64LE(seconds, at);
    packed.set(path, at);
    at = packed.writeUInt8(0, at + path.length);
    packed.set(content, at);
    at += content.length;
    if (isLink) at = packed.writeUInt8(0, at);
  }
  return packed.subarray(0, at);
}

function floorSeconds(ns: bigint): bigint {
  const seconds = ns / NS_PER_SECOND;
  return ns < 0n && seconds * NS_PER_SECOND !== ns ? seconds - 1n : seconds;
}

/** What addon/tree.c read of one file: its bytes, or the errno as a negative number. */
export function* readResults(bytes: Buffer): Generator<Buffer | number> {
  for (let at = 0; at < bytes.length;) {
    const size = bytes.readInt32LE(at);
    at += 4;
    yield size < 0 ? size : bytes.subarray(at, at + size);
    at += Math.max(0, size);
  }
}
