import { checkAttributes, checkFilePath, type FileLocation } from "./location.ts";
import type { GivenAttributes } from "../attributes.ts";
import { invalidField } from "../../domain/index.ts";

/** Largest offset in a file: off_t is a signed 64-bit number. */
const MAX_OFFSET_BYTES = 2n ** 63n - 1n;
const SHA256_BYTES = 32;

/** A part of a file to read. */
export interface ReadRequest extends FileLocation {
  readonly offsetBytes: bigint;
  /** 0: to the end of the file. */
  readonly lengthBytes: bigint;
}

/** A file to write. Undefined attributes stay those of the replaced file, else get the defaults. */
export interface WriteRequest extends FileLocation, GivenAttributes {
  /** Declared size of the content. */
  readonly sizeBytes: bigint | undefined;
  readonly sha256: Uint8Array | undefined;
  /** The answer need not have the content's SHA-256. */
  readonly skipSha256: boolean;
  readonly createParents: boolean;
  readonly exclusive: boolean;
  /** Of the last modification, in nanoseconds since 1970; undefined: now. */
  readonly modifiedNs: bigint | undefined;
  /** Blocks of zeros become holes. */
  readonly sparse: boolean;
}

/** Throws AgentError for a malformed request. */
export function checkReadRequest(request: ReadRequest): void {
  checkFilePath(request);
  if (request.offsetBytes > MAX_OFFSET_BYTES) throw invalidField("offset", "is larger than a file can be (2^63 - 1)");
}

/** Throws AgentError for a malformed request. */
export function checkWriteRequest(request: WriteRequest): void {
  const { sha256, skipSha256 } = request;
  checkFilePath(request);
  checkAttributes(request);
  if (sha256 !== undefined && sha256.length !== SHA256_BYTES)
    throw invalidField("sha256", `has ${sha256.length} bytes; a SHA-256 has ${SHA256_BYTES}`);
  if (sha256 !== undefined && skipSha256)
    throw invalidField("skip_sha256", "is set, and sha256 too: what is declared has to be computed");
}
