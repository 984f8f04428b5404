import type { ServiceError } from "@grpc/grpc-js";
import type { Piece } from "../../tar/index.ts";
import type { LeftEntry as LeftMessage } from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";

const NS_PER_SECOND = 1_000_000_000n;

/** An entry of a directory tree, as in an archive. The caller must read its content before requesting the next entry. */
export interface TreeEntry {
  readonly type: "file" | "directory" | "symlink" | "hard-link";
  /** Path relative to the tree's root directory; empty for the root itself. */
  readonly name: Buffer;
  /** Target of a symbolic link; for a hard link the path of an earlier file. */
  readonly linkTarget: Buffer;
  readonly mode: number;
  /** User id of the owner. Default: the workload's user. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Modification time in seconds since 1970, with fractions. */
  readonly mtimeSeconds: number;
  /** The exact modification time, in nanoseconds since 1970. Default: `mtimeSeconds`, to the microsecond. */
  readonly mtimeNs?: bigint | undefined;
  /** Size in bytes. */
  readonly size: number;
  /** Whether the file is sparse: blocks of zeros are then written as holes. */
  readonly sparse?: boolean | undefined;
  readonly content: AsyncIterable<Buffer>;
  /** The same content with holes instead of zeros, as `readTree` provides it. Read either this or `content`. */
  readonly pieces?: AsyncIterable<Piece> | undefined;
  /** Returns the whole content of a small file at once, if it is in memory already. Use either this or `content`. */
  readonly readAll?: (() => Buffer) | undefined;
}

/** An entry that could not be written, read or removed. */
export interface LeftEntry {
  /**
   * Path relative to the call's directory; empty for that directory itself. Bytes that are not UTF-8 are replaced: see
   * `rawName`.
   */
  readonly name: string;
  readonly rawName: Buffer;
  /** Name of the errno, such as "ENOSPC". "EOPNOTSUPP": a device, FIFO or socket, which trees do not support. */
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

/** Whether an error comes from the call, and not from the caller's own source or loop. */
export function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}

/** A Buffer on the same memory. */
export function bufferOf({ buffer, byteOffset, length }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}

/** Converts nanoseconds since 1970 to seconds and nanoseconds. */
export function timeOfNanoseconds(timeNs: bigint): { readonly seconds: number; readonly nanos: number } {
  const nanos = ((timeNs % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  return { seconds: Number((timeNs - nanos) / NS_PER_SECOND), nanos: Number(nanos) };
}

/** Converts seconds since 1970 to seconds and nanoseconds, to the microsecond. */
export function timeOfSeconds(time: number): { readonly seconds: number; readonly nanos: number } {
  const seconds = Math.floor(time);
  return { seconds, nanos: Math.floor((time - seconds) * 1_000_000) * 1_000 };
}
