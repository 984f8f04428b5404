import { checkAttributes, checkFilePath, type FileLocation } from "./location.ts";
import type { GivenAttributes } from "../attributes.ts";
import { invalidField } from "../../domain/index.ts";

/** Largest file offset: off_t is a signed 64-bit integer. */
const MAX_OFFSET_BYTES = 2n ** 63n - 1n;
const SHA256_BYTES = 32;

/** A decoded ReadFile request: which file, and which range of it. */
export interface ReadRequest extends FileLocation {
  readonly offsetBytes: bigint;
  /** Number of bytes to read; 0 means up to the end of the file. */
  readonly lengthBytes: bigint;
  /** Whether to report holes with their size. If false, their zeros are sent as data. */
  readonly holes: boolean;
}

/** A file to write. An undefined attribute keeps the value of the replaced file; a new file gets the default. */
export interface WriteRequest extends FileLocation, GivenAttributes {
  readonly sizeBytes: bigint | undefined;
  readonly sha256: Uint8Array | undefined;
  /** Whether the client does not need the SHA-256 of the content. */
  readonly skipSha256: boolean;
  readonly createParents: boolean;
  readonly exclusive: boolean;
  /** Modification time in nanoseconds since 1970; the current time if undefined. */
  readonly modifiedNs: bigint | undefined;
  /** Whether to turn blocks of zeros into holes. */
  readonly sparse: boolean;
}

export function checkReadRequest(request: ReadRequest): void {
  checkFilePath(request);
  if (request.offsetBytes > MAX_OFFSET_BYTES) throw invalidField("offset", "exceeds the largest file size (2^63 - 1)");
}

export function checkWriteRequest(request: WriteRequest): void {
  const { sha256, skipSha256 } = request;
  checkFilePath(request);
  checkAttributes(request);
  if (sha256 !== undefined && sha256.length !== SHA256_BYTES)
    throw invalidField("sha256", `must be a SHA-256 of ${SHA256_BYTES} bytes, but has ${sha256.length}`);
  if (sha256 !== undefined && skipSha256) throw invalidField("skip_sha256", "cannot be combined with sha256");
}
