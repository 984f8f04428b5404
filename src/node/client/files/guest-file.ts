import { EntryError, type Piece, secondsNotBefore, whole, withZeros } from "../../tar/index.ts";
import type { CallOptions } from "../grpc/channel.ts";
import { GuestError } from "../errors/errors.ts";
import type { GuestPath } from "./path.ts";
import type { ReadOptions } from "./read.ts";
import type { FileAttributes } from "./stat.ts";
import type { ArchiveEntry } from "./tree-entry.ts";

const NONE = Buffer.alloc(0);
const SLASH = Buffer.from("/");
const NS_PER_SECOND = 1_000_000_000n;

/** The calls to the guest that are needed to read a single file. */
export interface GuestFiles {
  stat(path: Buffer, options: CallOptions): Promise<FileAttributes>;
  readPieces(path: GuestPath, options: ReadOptions): AsyncIterable<Piece>;
}

/** Joins a path and a relative name with a slash. If either is empty, no slash is added. */
export function joined(path: Buffer, name: Buffer): Buffer {
  return name.length === 0 ? path : path.length === 0 ? name : Buffer.concat([path, SLASH, name]);
}

/** The modification time in nanoseconds since 1970. */
export function nanosecondsOf({ mtime, mtimeNanos }: Pick<FileAttributes, "mtime" | "mtimeNanos">): bigint {
  return BigInt(Math.floor((mtime?.getTime() ?? 0) / 1_000)) * NS_PER_SECOND + BigInt(mtimeNanos);
}

/**
 * Creates the tree entry of a regular file in the guest. The content is requested by a separate call, which begins when
 * the caller begins to read the content. If the file cannot be read, reading the content throws EntryError.
 *
 * @param call called when the separate call begins, and returns the options for it
 */
export function guestFile(
  guest: Pick<GuestFiles, "readPieces">,
  path: GuestPath,
  name: Buffer,
  attributes: FileAttributes,
  call: () => ReadOptions,
): ArchiveEntry {
  const { mode, uid, gid, size } = attributes;
  const mtimeNs = nanosecondsOf(attributes);
  const head = { type: "file", name, linkTarget: NONE, mode, uid, gid, size } as const;
  const pieces = piecesOf(guest, path, size, call);
  return {
    ...head,
    mtimeNs,
    mtimeSeconds: secondsNotBefore(mtimeNs),
    sparse: true,
    pieces,
    content: withZeros(pieces),
  };
}

async function* piecesOf(
  guest: Pick<GuestFiles, "readPieces">,
  path: GuestPath,
  sizeBytes: number,
  call: () => ReadOptions,
): AsyncGenerator<Piece> {
  if (sizeBytes === 0) return;
  const content = guest.readPieces(path, { ...call(), length: sizeBytes });
  try {
    yield* whole<Piece>(content, sizeBytes, Buffer.from(path).toString());
  } catch (error) {
    const errno = entryErrno(error);
    throw errno === undefined ? error : new EntryError(errno, (error as Error).message, { cause: error });
  }
}

/** The errno of an error that is about a path of the guest; undefined for other errors, such as a lost connection. */
export function entryErrno(error: unknown): string | undefined {
  return error instanceof GuestError ? error.metadata["errno"] : undefined;
}
