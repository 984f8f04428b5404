import { create, type DescMessage, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { invalidField } from "../domain/index.ts";
import { errnoOf } from "../../shared/errors.ts";
import { malformedMessage, PREFIX_BYTES } from "./framing.ts";
import { FieldWriter, LENGTH_DELIMITED, writeVarint } from "../../shared/field-writer.ts";
import { checkFieldCount, FIELD_LIMIT, FieldCursor, tooManyFields } from "./wire.ts";

/** Messages below this size are copied into one buffer with their prefix. This is cheaper than a frame of two parts. */
const JOIN_BELOW_BYTES = 1_024;

/** Error code of TextDecoder. Invalid UTF-8 is rejected, never replaced. */
const NOT_UTF8 = "ERR_ENCODING_INVALID_ENCODED_DATA";

/** A message with its 5-byte prefix, in one or more parts. */
export type Frame = readonly Uint8Array[];

export function messageFrame<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): Frame {
  const bytes = toBinary(schema, message);
  if (bytes.length < JOIN_BELOW_BYTES) {
    // Buffer.allocUnsafe takes the memory from Node's pool. V8 would allocate each array of more than 64 bytes separately.
    const joined = Buffer.allocUnsafe(PREFIX_BYTES + bytes.length);
    writeLength(joined, bytes.length);
    joined.set(bytes, PREFIX_BYTES);
    return [joined];
  }
  const prefix = Buffer.allocUnsafe(PREFIX_BYTES);
  writeLength(prefix, bytes.length);
  return [prefix, bytes];
}

/** Largest size of the prefix, the tag and the length. Tag and length have at most five bytes each. */
const HEAD_BYTES: number = PREFIX_BYTES + 10;

/** Initial size of a FrameWriter's buffer. Most messages that use one are much smaller. */
const WRITER_BYTES = 128;

/** Encodes a message directly into its frame. */
export class FrameWriter extends FieldWriter {
  /** @param sizeBytes upper bound for the encoded message */
  constructor(sizeBytes: number = WRITER_BYTES) {
    super(PREFIX_BYTES + sizeBytes, PREFIX_BYTES);
  }

  /** Writes a google.protobuf.Timestamp. */
  timeNs(field: number, ns: bigint): void {
    const { seconds, nanos } = timestamp(ns);
    this.time(field, Number(seconds), nanos);
  }

  frame(): Frame {
    const frame = this.written();
    writeLength(frame, frame.length - PREFIX_BYTES);
    return [frame];
  }
}

/**
 * Decodes a message. Its byte fields are views of `bytes`, not copies.
 *
 * @param refusal creates the error that is thrown if the message has more than `fieldLimit` fields
 * @throws AgentError for malformed bytes
 */
export function decodeMessage<Desc extends DescMessage>(
  schema: Desc,
  bytes: Uint8Array,
  fieldLimit: number = FIELD_LIMIT,
  refusal: (limit: number) => Error = tooManyFields,
): MessageShape<Desc> {
  checkFieldCount(schema, bytes, fieldLimit, refusal);
  if (bytes.length === 0) return create(schema);
  try {
    return fromBinary(schema, bytes, { readUnknownFields: false });
  } catch (cause) {
    const why = errnoOf(cause) === NOT_UTF8 ? ": it contains a string that is not UTF-8" : "";
    throw malformedMessage(`the request is not a valid ${schema.typeName}${why}`, cause);
  }
}

/** Frames a message whose only field is `payload`. A large payload is not copied and must not change until it is sent. */
export function bytesFieldFrame(fieldNumber: number, payload: Uint8Array): Frame {
  const join = payload.length < JOIN_BELOW_BYTES;
  const head = Buffer.allocUnsafe(HEAD_BYTES + (join ? payload.length : 0));
  const tagEnd = writeVarint(head, PREFIX_BYTES, fieldNumber * 8 + LENGTH_DELIMITED);
  const end = writeVarint(head, tagEnd, payload.length);
  writeLength(head, end - PREFIX_BYTES + payload.length);
  if (!join) return [head.subarray(0, end), payload];
  head.set(payload, end);
  return [head.subarray(0, end + payload.length)];
}

/**
 * Returns a view of the value if the message consists of only this field, of type `bytes`; otherwise returns undefined.
 * Throws AgentError for malformed bytes. Used for the input of commands, because `decodeMessage` takes 6 to 10 % more
 * CPU time.
 */
export function tryBytesField(message: Uint8Array, fieldNumber: number): Uint8Array | undefined {
  const field = new FieldCursor(message);
  const isWhole = field.next() && field.valueEnd === message.length;
  const isMatch = isWhole && field.number === fieldNumber && field.wireType === LENGTH_DELIMITED;
  return isMatch ? message.subarray(field.valueStart) : undefined;
}

/** Writes the prefix of a gRPC message: a byte 0 (not compressed), and the length in four bytes. */
function writeLength(frame: Uint8Array, length: number): void {
  frame[0] = 0;
  frame[1] = length >>> 24;
  frame[2] = length >>> 16;
  frame[3] = length >>> 8;
  frame[4] = length;
}

const NS_PER_SECOND = 1_000_000_000n;
/** First and last second of a timestamp: the years 1 to 9999 (google/protobuf/timestamp.proto). */
const FIRST_SECOND = -62_135_596_800n;
const LAST_SECOND = 253_402_300_799n;
const NANOS_LIMIT = 1_000_000_000;

/** Converts nanoseconds since 1970 to a protobuf timestamp, whose nanos are never negative. */
export function timestamp(ns: bigint): Timestamp {
  const nanos = ((ns % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  return { $typeName: "google.protobuf.Timestamp", seconds: (ns - nanos) / NS_PER_SECOND, nanos: Number(nanos) };
}

/**
 * Converts a protobuf timestamp to nanoseconds since 1970. If the timestamp is invalid, throws INVALID_ARGUMENT with
 * the field's name.
 */
export function timestampNs(field: string, { seconds, nanos }: Timestamp): bigint {
  if (seconds < FIRST_SECOND || seconds > LAST_SECOND) throw invalidField(field, "must be in the years 1 to 9999");
  if (nanos < 0 || nanos >= NANOS_LIMIT) throw invalidField(field, "must have nanos from 0 to 999999999");
  return seconds * NS_PER_SECOND + BigInt(nanos);
}
