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
const NUL: Uint8Array = Uint8Array.of(0);
const NONE = new Uint8Array(0);
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

/** Packs an entry as addon/tree.c reads it. */
export function packEntry({ path, type, content, modifiedNs, ...entry }: SmallEntry): readonly Uint8Array[] {
  const isLink = type === ENTRY.symlink || type === ENTRY.hardLink;
  const head = Buffer.alloc(HEAD_BYTES);
  const seconds = modifiedNs === undefined ? 0n : floorSeconds(modifiedNs);
  head.writeUInt32LE(path.length + 1, 0);
  head.writeUInt32LE(content.length + (isLink ? 1 : 0), 4);
  head.writeUInt32LE(type, 8);
  const asked = (entry.hasGroup ? HAS_GROUP : 0) | (entry.hasOwner ? HAS_OWNER : 0) | (entry.hasMode ? HAS_MODE : 0);
  head.writeUInt32LE((modifiedNs === undefined ? 0 : HAS_MODIFIED) | asked, 12);
  head.writeUInt32LE(entry.mode, 16);
  head.writeUInt32LE(entry.uid, 20);
  head.writeUInt32LE(entry.gid, 24);
  head.writeUInt32LE(modifiedNs === undefined ? 0 : Number(modifiedNs - seconds * NS_PER_SECOND), 28);
  head.writeBigInt64LE(seconds, 32);
  return [head, path, NUL, content, isLink ? NUL : NONE];
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
