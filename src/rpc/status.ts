import { toBinary, create } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import type { AgentError, StatusName } from "../domain/index.ts";
import { ErrorInfoSchema } from "../gen/google/rpc/error_details_pb.ts";

/** ErrorInfo.domain of every error of the agent (DESIGN §4). */
export const ERROR_DOMAIN = "svc.guest";

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
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
};

const ERROR_INFO_TYPE_URL = `type.googleapis.com/${ErrorInfoSchema.typeName}`;

/**
 * Bytes of UTF-8 that a message may have, and the values of its metadata together. Both quote what the client sent, such
 * as a path. Clients of the C core give a status up whose fields are over 8 KiB; a byte of the message is up to three
 * characters of grpc-message, and a third more than one of grpc-status-details-bin.
 */
const MESSAGE_LIMIT_BYTES = 900;
const METADATA_LIMIT_BYTES = 1_200;

const ELLIPSIS_BYTES = Buffer.byteLength("…");

/** Fields that end a response; gRPC puts them in the trailers, or in the headers where nothing else was sent. */
export type StatusFields = Readonly<Record<string, string>>;

/** The fields of a call that went well. */
export const OK_FIELDS: StatusFields = { "grpc-status": "0" };

/** The gRPC number of a status (google.rpc.Code). */
export function statusCode(status: StatusName): number {
  return CODES[status];
}

/** Encodes an error as grpc-status, grpc-message and grpc-status-details-bin (a google.rpc.Status with an ErrorInfo). */
export function errorFields(error: AgentError): StatusFields {
  const message = clip(error.message, MESSAGE_LIMIT_BYTES);
  return {
    "grpc-status": String(CODES[error.status]),
    "grpc-message": percentEncode(message),
    "grpc-status-details-bin": Buffer.from(encodeStatus(error, message)).toString("base64").replace(/=+$/, ""),
  };
}

/** google.rpc.Status: code = 1, message = 2, details = 3; google.protobuf.Any: type_url = 1, value = 2. */
function encodeStatus(error: AgentError, message: string): Uint8Array {
  const info = create(ErrorInfoSchema, { reason: error.reason, domain: ERROR_DOMAIN, metadata: clipAll(error.metadata) });
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

/** Short values stay whole; the long ones share what those leave. */
function clipAll(metadata: Readonly<Record<string, string>>): Record<string, string> {
  const entries = Object.entries(metadata).toSorted(([, a], [, b]) => a.length - b.length);
  let leftBytes = METADATA_LIMIT_BYTES;
  return Object.fromEntries(
    entries.map(([key, value], index) => {
      const clipped = clip(value, Math.floor(leftBytes / (entries.length - index)));
      leftBytes -= Buffer.byteLength(clipped);
      return [key, clipped];
    }),
  );
}

/** Cuts at a character, and marks the cut. */
function clip(text: string, limitBytes: number): string {
  const whole = text.toWellFormed();
  if (Buffer.byteLength(whole) <= limitBytes) return whole;
  const bytes = Buffer.from(whole).subarray(0, limitBytes - ELLIPSIS_BYTES);
  return `${new TextDecoder().decode(bytes, { stream: true })}…`;
}

/** Percent-encoding of grpc-message: everything but printable ASCII, and "%" itself (gRPC over HTTP/2, Status-Message). */
function percentEncode(text: string): string {
  return text.replace(/[^\x20-\x24\x26-\x7e]+/g, encodeURIComponent);
}
