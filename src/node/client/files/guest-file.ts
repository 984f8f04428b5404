import { EntryError, secondsNotBefore, whole } from "../../tar/index.ts";
import type { CallOptions } from "../channel.ts";
import { GuestError } from "../errors.ts";
import type { PathAttributes } from "./attributes.ts";
import type { GuestPath } from "./path.ts";
import type { FileContent, ReadFileOptions } from "./read.ts";
import type { TreeEntry } from "./tree-entry.ts";

const NONE = Buffer.alloc(0);
const SLASH = Buffer.from("/");
const NS_PER_SECOND = 1_000_000_000n;

/** What reading single files needs of a client. */
export interface GuestFiles {
  statPath(path: Buffer, options: CallOptions & { readonly noFollow?: boolean | undefined }): Promise<PathAttributes>;
  readFile(path: GuestPath, options: ReadFileOptions): FileContent;
}

/** A name below a path. */
export function joined(path: Buffer, name: Buffer): Buffer {
  return name.length === 0 ? path : path.length === 0 ? name : Buffer.concat([path, SLASH, name]);
}

/** The time of the last modification in nanoseconds since 1970. */
export function nanosecondsOf({ mtime, mtimeNanos }: Pick<PathAttributes, "mtime" | "mtimeNanos">): bigint {
  return BigInt(Math.floor((mtime?.getTime() ?? 0) / 1_000)) * NS_PER_SECOND + BigInt(mtimeNanos);
}

/**
 * A regular file of the guest as an entry of a tree, read by a call of its own. Its content throws EntryError where it
 * cannot be read.
 *
 * @param call options of the call, at the time when it is made
 */
export function guestFile(
  guest: Pick<GuestFiles, "readFile">,
  path: GuestPath,
  name: Buffer,
  attributes: PathAttributes,
  call: () => ReadFileOptions,
): TreeEntry {
  const { mode, uid, gid, size } = attributes;
  const mtimeNs = nanosecondsOf(attributes);
  const head = { type: "file", name, linkTarget: NONE, mode, uid, gid, size } as const;
  return { ...head, mtimeNs, mtimeSeconds: secondsNotBefore(mtimeNs), content: contentOf(guest, path, size, call) };
}

async function* contentOf(
  guest: Pick<GuestFiles, "readFile">,
  path: GuestPath,
  sizeBytes: number,
  call: () => ReadFileOptions,
): AsyncGenerator<Buffer> {
  if (sizeBytes === 0) return;
  const content = guest.readFile(path, { ...call(), length: sizeBytes }).readable();
  try {
    yield* whole<Buffer>(content, sizeBytes, Buffer.from(path).toString());
  } catch (error) {
    const errno = entryErrno(error);
    throw errno === undefined ? error : new EntryError(errno, (error as Error).message, { cause: error });
  }
}

/** The errno of a failure that is about a path of the guest; undefined: a different failure, such as a lost connection. */
export function entryErrno(error: unknown): string | undefined {
  return error instanceof GuestError ? error.metadata["errno"] : undefined;
}
