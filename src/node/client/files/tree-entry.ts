import type { ServiceError } from "@grpc/grpc-js";
import type { Piece, TarEntry } from "../../tar/index.ts";
import type { GuestPath } from "./path.ts";
import type { LeftEntry as LeftMessage } from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";

export const NS_PER_SECOND = 1_000_000_000n;

/** A kind of entry that trees support. */
export type TreeEntryType = "file" | "directory" | "symlink" | "hard-link";

/**
 * An entry of a tree that `readTree` yields, with the attributes that `stat` and `readdir` return. Read its content
 * before you request the next entry. A copy, such as `{ ...entry, name }`, can be passed to `writeTree`.
 */
export interface TreeEntry {
  /** Type of the entry. "hard-link" means a further name of an earlier file; `linkTarget` is that file's path. */
  readonly type: TreeEntryType;
  /** Path relative to the tree's root directory. Bytes that are not UTF-8 are replaced: see `rawName`. */
  readonly name: string;
  readonly rawName: Buffer;
  /**
   * Target of a symbolic link; for a hard link, the path of an earlier file. Given as bytes, because a path need not be
   * UTF-8.
   */
  readonly linkTarget?: Buffer;
  readonly mode: number;
  /** User id of the owner. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Size in bytes. It is 0 for entries that are not files. */
  readonly size: number;
  readonly mtime: Date;
  /** Nanoseconds of `mtime` since its last full second. */
  readonly mtimeNanos: number;
  /** Modification time in seconds since 1970, as a decimal text. Only set if Date cannot express the time. */
  readonly mtimeSeconds?: string;
  /** Whether the file is sparse. */
  readonly sparse: boolean;
  readonly content: AsyncIterable<Buffer>;
  /**
   * The same content, with holes instead of long runs of zeros. Read either `pieces` or `content`, not both. Copying
   * the entry with `{ ...entry }` does not copy this field.
   */
  readonly pieces: AsyncIterable<Piece>;
  /**
   * Returns the whole content of a small file at once, if it has arrived together with the entry. Use either this or
   * `content`, not both. Copying the entry with `{ ...entry }` does not copy this field.
   */
  readonly readAll?: (() => Buffer) | undefined;
}

/** An entry for `writeTree`. Every entry of `readTree` can be passed, too. */
export interface NewTreeEntry {
  readonly type: TreeEntryType;
  /** Path relative to the tree's root directory. */
  readonly name: GuestPath;
  /**
   * Bytes of a `name` that is not UTF-8. They are ignored if `name` differs from the text of these bytes, so that a
   * caller can rename an entry by changing only its `name`.
   */
  readonly rawName?: Uint8Array | undefined;
  /** Target of a symbolic link; for a hard link, the path of an earlier file. */
  readonly linkTarget?: GuestPath | undefined;
  /** Permission bits. Default: the bits of the replaced file; 0o644 for a new file, 0o755 for a new directory. */
  readonly mode?: number | undefined;
  /** User id of the owner. Default: the owner of the replaced file; for a new file, the workload's user. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Modification time. Default: now. */
  readonly mtime?: Date | undefined;
  /**
   * Nanoseconds of `mtime` since its last full second. Ignored if they do not match the milliseconds of `mtime`: the
   * caller has then changed `mtime` alone. Default: taken from the milliseconds of `mtime`.
   */
  readonly mtimeNanos?: number | undefined;
  /**
   * Seconds since 1970 as a decimal text, for a time that Date cannot express. Ignored if `mtime` is a valid Date. A
   * time before year 1 or after year 9999 becomes the nearest time within these years.
   */
  readonly mtimeSeconds?: string | undefined;
  /** Size of `content` in bytes. Required for a file whose content is not text or bytes. */
  readonly size?: number | undefined;
  /** Whether the file is sparse: blocks of zeros are then written as holes. Default: false. */
  readonly sparse?: boolean | undefined;
  /** The content of a file; text is sent as UTF-8. Default: empty. */
  readonly content?: string | Uint8Array | AsyncIterable<Uint8Array | string> | undefined;
  /** The same content as `content`, but with holes in place of long runs of zeros, as `readTree` provides it. */
  readonly pieces?: AsyncIterable<Piece> | undefined;
  /** Returns the same bytes as `content`, synchronously and as one buffer, like `readAll` of an entry of `readTree`. */
  readonly readAll?: (() => Buffer) | undefined;
}

/** Entries for `writeTree`. Synchronous iterables take less CPU time than asynchronous ones. */
export type TreeEntries = Iterable<NewTreeEntry> | AsyncIterable<NewTreeEntry>;

/**
 * An entry of a tree as an archive entry, which `upload` and `download` use. Its content must be read before the next
 * entry is requested.
 */
export interface ArchiveEntry extends TarEntry {
  readonly type: TreeEntryType;
  readonly sparse?: boolean | undefined;
}

/** An archive entry for `writeTree`, in which the mode and the modification time are optional. */
export type SentEntry = Omit<ArchiveEntry, "mode" | "mtimeSeconds"> & {
  readonly mode?: number | undefined;
  readonly mtimeSeconds?: number | undefined;
};

/** An entry that could not be written, read or removed. */
export interface LeftEntry {
  /**
   * Path relative to the call's directory; empty for that directory itself. Bytes that are not UTF-8 are replaced: see
   * `rawName`.
   */
  readonly name: string;
  readonly rawName: Buffer;
  /** Name of the errno, such as "ENOSPC". "EOPNOTSUPP" means a device, FIFO or socket, which trees do not support. */
  readonly errno: string;
  /** True if the entry failed on the client's machine; undefined if it failed in the guest. */
  readonly local?: true;
}

/** Result of reading or writing a tree. */
export interface TreeResult {
  readonly entries: number;
  readonly failed: number;
  /** The first 100 failed entries. */
  readonly failures: readonly LeftEntry[];
}

export function resultOf(items: bigint, failed: bigint, failures: readonly LeftMessage[]): TreeResult {
  return {
    entries: Number(items),
    failed: Number(failed),
    failures: failures.map(leftOf),
  };
}

export function leftOf({ name, errno }: LeftMessage): LeftEntry {
  const rawName = bufferOf(name);
  return { name: rawName.toString(), rawName, errno };
}

/**
 * Whether an error is a gRPC error of the call. Other errors come from the caller's iterator of entries, or from the
 * caller's loop.
 */
export function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}

/** Returns a Buffer on the same memory. */
export function bufferOf({ buffer, byteOffset, length }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}

/** Splits a time in nanoseconds since 1970 into full seconds and the remaining nanoseconds, which are never negative. */
export function timeOfNanoseconds(timeNs: bigint): { readonly seconds: number; readonly nanos: number } {
  const nanos = ((timeNs % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  return { seconds: Number((timeNs - nanos) / NS_PER_SECOND), nanos: Number(nanos) };
}
