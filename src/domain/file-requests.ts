import { invalidField } from "./errors.ts";

/** Largest offset in a file: off_t is a signed 64-bit number. */
const MAX_OFFSET_BYTES = 2n ** 63n - 1n;
/** (uid_t)-1 means "unchanged" to chown(2). */
const MAX_ID = 2 ** 32 - 2;
const MAX_MODE = 0o7777;
const SHA256_BYTES = 32;

/** A part of a file to read. */
export interface ReadRequest {
  readonly path: string;
  readonly offsetBytes: bigint;
  /** 0: to the end of the file. */
  readonly lengthBytes: bigint;
}

/** What to write where. Undefined attributes are those of the file being replaced, else the defaults. */
export interface WriteRequest {
  readonly path: string;
  readonly mode: number | undefined;
  readonly uid: number | undefined;
  readonly gid: number | undefined;
  /** What the content must amount to. */
  readonly sizeBytes: bigint | undefined;
  readonly sha256: Uint8Array | undefined;
  readonly createParents: boolean;
  readonly exclusive: boolean;
}

/** Refuses a path that is empty, relative or holds a NUL. Its length is the kernel's to judge. Throws AgentError. */
export function checkFilePath(path: string): void {
  if (path === "") throw invalidField("path", "is empty");
  if (path.includes("\0")) throw invalidField("path", "holds a NUL");
  if (!path.startsWith("/")) throw invalidField("path", "is relative; give an absolute one");
}

/** Throws AgentError for a malformed request. */
export function checkReadRequest(request: ReadRequest): void {
  checkFilePath(request.path);
  if (request.offsetBytes > MAX_OFFSET_BYTES) throw invalidField("offset", "is larger than a file can be (2^63 - 1)");
}

/** Throws AgentError for a malformed request. */
export function checkWriteRequest(request: WriteRequest): void {
  const { path, mode, uid, gid, sha256 } = request;
  checkFilePath(path);
  if (mode !== undefined && mode > MAX_MODE) throw invalidField("mode", "has bits beyond 07777");
  if (uid !== undefined && uid > MAX_ID) throw invalidField("uid", `is larger than ${MAX_ID}`);
  if (gid !== undefined && gid > MAX_ID) throw invalidField("gid", `is larger than ${MAX_ID}`);
  if (sha256 !== undefined && sha256.length !== SHA256_BYTES)
    throw invalidField("sha256", `has ${sha256.length} bytes; a SHA-256 has ${SHA256_BYTES}`);
}
