import type { ServiceError } from "@grpc/grpc-js";
import type { Piece } from "../../tar/index.ts";
import type { LeftEntry as LeftMessage } from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";

const NS_PER_SECOND = 1_000_000_000n;

/** An entry of a tree, as in an archive. Its content has to be read before the next entry is asked for. */
export interface TreeEntry {
  readonly type: "file" | "directory" | "symlink" | "hard-link";
  /** Path from the tree's folder on; empty for that folder itself. */
  readonly name: Buffer;
  /** Target of a symbolic link; of a hard link the path of an earlier file. */
  readonly linkTarget: Buffer;
  readonly mode: number;
  /** Owner. Default: the workload's user. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Since 1970, with fractions. */
  readonly mtimeSeconds: number;
  /** The same time exactly, in nanoseconds since 1970. Default: that of `mtimeSeconds`, to the microsecond. */
  readonly mtimeNs?: bigint | undefined;
  /** In bytes. */
  readonly size: number;
  /** The file has holes: blocks of zeros become holes. */
  readonly sparse?: boolean | undefined;
  readonly content: AsyncIterable<Buffer>;
  /** The same with holes instead of their zeros, as `readTree` gives it. Read one of the two. */
  readonly pieces?: AsyncIterable<Piece> | undefined;
  /** All of a small file at once, where it is at hand: instead of `content`. */
  readonly readAll?: (() => Buffer) | undefined;
}

/** An entry that could not be written, read or removed. */
export interface LeftEntry {
  /** Its path from the call's folder on; empty for that folder itself. Bytes that are no UTF-8: see `rawName`. */
  readonly name: string;
  readonly rawName: Buffer;
  /** Such as "ENOSPC". "EOPNOTSUPP": a tree holds no devices, FIFOs and sockets. */
  readonly errno: string;
  /** It failed on this machine; absent: in the guest. */
  readonly local?: true;
}

/** The result of a tree's way. */
export interface TreeResult {
  readonly entries: number;
  readonly failed: number;
  /** The first 100 that failed. */
  readonly failures: readonly LeftEntry[];
}

/** The result as the library gives it. */
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

/** Whether a call failed, not the caller's own source or loop. */
export function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}

/** The same bytes. */
export function bufferOf({ buffer, byteOffset, length }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}

/** A time in nanoseconds since 1970 as the wire has it. */
export function timeOfNanoseconds(timeNs: bigint): { readonly seconds: number; readonly nanos: number } {
  const nanos = ((timeNs % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  return { seconds: Number((timeNs - nanos) / NS_PER_SECOND), nanos: Number(nanos) };
}

/** A time since 1970 with fractions as the wire has it, to the microsecond. */
export function timeOfSeconds(time: number): { readonly seconds: number; readonly nanos: number } {
  const seconds = Math.floor(time);
  return { seconds, nanos: Math.floor((time - seconds) * 1_000_000) * 1_000 };
}
