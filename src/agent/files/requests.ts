import { invalidField } from "../domain/index.ts";

/** Largest offset in a file: off_t is a signed 64-bit number. */
const MAX_OFFSET_BYTES = 2n ** 63n - 1n;
/** (uid_t)-1 means "unchanged" to chown(2). */
const MAX_ID = 2 ** 32 - 2;
const MAX_MODE = 0o7777;
const SHA256_BYTES = 32;

/** A path, and what it may lead over. */
export interface FileLocation {
  /** Absolute; relative with `beneath`. */
  readonly path: string;
  /** A folder that the path may not leave; empty: anywhere. */
  readonly beneath: string;
  /** With `beneath`: the path may contain no symbolic link. */
  readonly noSymlinks: boolean;
}

/** A part of a file to read. */
export interface ReadRequest extends FileLocation {
  readonly offsetBytes: bigint;
  /** 0: to the end of the file. */
  readonly lengthBytes: bigint;
}

/** A file to write. Undefined attributes stay those of the replaced file, else get the defaults. */
export interface WriteRequest extends FileLocation {
  readonly mode: number | undefined;
  readonly uid: number | undefined;
  readonly gid: number | undefined;
  /** Declared size of the content. */
  readonly sizeBytes: bigint | undefined;
  readonly sha256: Uint8Array | undefined;
  /** Nobody wants to know the content's SHA-256. */
  readonly skipSha256: boolean;
  readonly createParents: boolean;
  readonly exclusive: boolean;
  /** Of the last modification, in nanoseconds since 1970; undefined: now. */
  readonly modifiedNs: bigint | undefined;
  /** Blocks of zeros become holes. */
  readonly sparse: boolean;
}

/** The path as people know it, with the folder that it is relative to. */
export function wholePath({ path, beneath }: FileLocation): string {
  return beneath === "" ? path : `${beneath.replace(/\/+$/, "")}/${path}`;
}

/** Refuses a path that is empty, holds a NUL, or is relative where it may not be. The kernel judges its length. */
export function checkFilePath({ path, beneath, noSymlinks }: FileLocation): void {
  if (path === "") throw invalidField("path", "is empty");
  if (path.includes("\0")) throw invalidField("path", "holds a NUL");
  if (beneath === "") {
    if (!path.startsWith("/")) throw invalidField("path", "is relative; give an absolute one");
    if (noSymlinks) throw invalidField("no_symlinks", "needs beneath: the folder from which on no link is followed");
    return;
  }
  if (path.startsWith("/")) throw invalidField("path", "is absolute; with beneath it is relative to that folder");
  if (beneath.includes("\0")) throw invalidField("beneath", "holds a NUL");
  if (!beneath.startsWith("/")) throw invalidField("beneath", "is relative; give an absolute one");
}

/** Throws AgentError for a malformed request. */
export function checkReadRequest(request: ReadRequest): void {
  checkFilePath(request);
  if (request.offsetBytes > MAX_OFFSET_BYTES) throw invalidField("offset", "is larger than a file can be (2^63 - 1)");
}

/** Throws AgentError for a malformed request. */
export function checkWriteRequest(request: WriteRequest): void {
  const { mode, uid, gid, sha256, skipSha256 } = request;
  checkFilePath(request);
  if (mode !== undefined && mode > MAX_MODE) throw invalidField("mode", "has bits beyond 07777");
  if (uid !== undefined && uid > MAX_ID) throw invalidField("uid", `is larger than ${MAX_ID}`);
  if (gid !== undefined && gid > MAX_ID) throw invalidField("gid", `is larger than ${MAX_ID}`);
  if (sha256 !== undefined && sha256.length !== SHA256_BYTES)
    throw invalidField("sha256", `has ${sha256.length} bytes; a SHA-256 has ${SHA256_BYTES}`);
  if (sha256 !== undefined && skipSha256)
    throw invalidField("skip_sha256", "is set, and sha256 too: what is declared has to be computed");
}
