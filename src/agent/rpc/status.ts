import { toBinary, create } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { AgentError, StatusName } from "../domain/index.ts";
import type { Fields } from "../http2/index.ts";
import { ErrorInfoSchema } from "../../shared/gen/google/rpc/error_details_pb.ts";

/** ErrorInfo.domain of all errors of the agent. */
const ERROR_DOMAIN = "svc.guest";

/** Numbers of the canonical codes (google.rpc.Code). */
const CODES: Readonly<Record<StatusName, number>> = {
  CANCELLED: 1,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
};

const ERROR_INFO_TYPE_URL = `type.googleapis.com/${ErrorInfoSchema.typeName}`;

/** Largest length of the message, and of a metadata value, in a status. Longer texts are cut. */
const TEXT_LIMIT_CHARS = 2_048;
/**
 * Limit for all names and values of a status. Clients based on gRPC C-core randomly drop trailers of more than 8 KiB,
 * and then report RESOURCE_EXHAUSTED. The limit leaves space for other fields.
 */
const STATUS_LIMIT_BYTES = 6 * 1024 - 256;

/** Status fields of a successful call: in the trailers, or in the headers if nothing else was sent. */
export const OK_FIELDS: Fields = { "grpc-status": "0" };

/**
 * Encodes an error as grpc-status, grpc-message and grpc-status-details-bin (a google.rpc.Status with an ErrorInfo).
 * Shortens the texts in steps until everything fits, because the encoding makes text that is not ASCII longer.
 */
export function errorFields(error: AgentError): Fields {
  for (let limitChars = TEXT_LIMIT_CHARS; ; limitChars = Math.floor(limitChars * 0.75)) {
    const fields = fieldsWithin(error, limitChars);
    if (sizeBytes(fields) <= STATUS_LIMIT_BYTES || limitChars <= 1) return fields;
  }
}

function fieldsWithin(error: AgentError, limitChars: number): Fields {
  const message = clip(error.message, limitChars);
  return {
    "grpc-status": String(CODES[error.status]),
    "grpc-message": percentEncode(message),
    "grpc-status-details-bin": Buffer.from(encodeStatus(error, message, limitChars))
      .toString("base64")
      .replace(/=+$/, ""),
    // The error for an unsupported encoding must list the supported ones (gRPC's compression.md, "Compression Method
    // Asymmetry Between Peers").
    ...(error.reason === "UNSUPPORTED_COMPRESSION" && { "grpc-accept-encoding": "identity" }),
  };
}

/** Returns the size in bytes of header fields, whose names and values must be ASCII. */
function sizeBytes(fields: Fields): number {
  return Object.entries(fields).reduce((sum, [name, value]) => sum + name.length + value.length, 0);
}

/** Encodes google.rpc.Status (code = 1, message = 2, details = 3) with an Any (type_url = 1, value = 2). */
function encodeStatus(error: AgentError, message: string, limitChars: number): Uint8Array {
  const metadata: Record<string, string> = {};
  for (const [key, value] of Object.entries(error.metadata)) metadata[key] = clip(value, limitChars);
  const info = create(ErrorInfoSchema, { reason: error.reason, domain: ERROR_DOMAIN, metadata });
  return new BinaryWriter()
    .tag(1, WireType.Varint)
    .int32(CODES[error.status])
    .tag(2, WireType.LengthDelimited)
    .string(message)
    .tag(3, WireType.LengthDelimited)
    .fork()
    .tag(1, WireType.LengthDelimited)
    .string(ERROR_INFO_TYPE_URL)
    .tag(2, WireType.LengthDelimited)
    .bytes(toBinary(ErrorInfoSchema, info))
    .join()
    .finish();
}

function clip(text: string, limitChars: number): string {
  const clipped = text.length > limitChars ? `${text.slice(0, limitChars - 1)}…` : text;
  return clipped.toWellFormed();
}

/** Percent-encodes grpc-message: all but printable ASCII, and "%" itself (gRPC over HTTP/2, Status-Message). */
function percentEncode(text: string): string {
  return text.replace(/[^\x20-\x24\x26-\x7e]+/g, encodeURIComponent);
}
