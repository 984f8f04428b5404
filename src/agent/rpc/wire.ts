import type { DescMessage } from "@bufbuild/protobuf";
import { LENGTH_DELIMITED } from "../../shared/field-writer.ts";
import { malformedMessage } from "./framing.ts";

/** Wire types of protobuf. Groups (3 and 4) are not used in proto3. */
export const VARINT = 0;
const FIXED64 = 1;
const FIXED32 = 5;

/**
 * Largest number of fields in a request, including the fields of nested messages. Valid requests have about a dozen.
 * Without a limit, the decoder would create two million objects for 4 MiB of empty fields. Requests with many items,
 * such as WriteTree, have limits of their own.
 */
export const FIELD_LIMIT = 1_024;
/** A message up to this size cannot have more fields than the limit, because a field has at least two bytes. */
const FEW_FIELDS_BYTES: number = 2 * FIELD_LIMIT;

/** Iterates over the fields of a message without allocating objects. Throws AgentError for malformed bytes. */
export class FieldCursor {
  readonly #bytes: Uint8Array;
  readonly #end: number;
  #at: number;
  /** Number, wire type and start of the current field. */
  number = 0;
  wireType = 0;
  start = 0;
  /** Start of the field's value, after a length prefix if there is one. The value ends at `valueEnd`. */
  valueStart = 0;
  valueEnd = 0;
  /** Value of the current field if it is an integer; exact up to 2^53. */
  value = 0;

  constructor(bytes: Uint8Array, start = 0, end: number = bytes.length) {
    this.#bytes = bytes;
    this.#at = start;
    this.#end = end;
  }

  /** Moves to the next field. Returns false at the end. */
  next(): boolean {
    if (this.#at >= this.#end) return false;
    this.start = this.#at;
    const tag = this.#varint();
    this.number = Math.floor(tag / 8);
    this.wireType = tag % 8;
    if (this.number === 0 || tag > 0xffff_ffff) throw damaged();
    this.valueStart = this.#at;
    switch (this.wireType) {
      case VARINT:
        this.value = this.#varint();
        break;
      case FIXED64:
        this.#at += 8;
        break;
      case LENGTH_DELIMITED: {
        const length = this.#varint();
        this.valueStart = this.#at;
        this.#at += length;
        break;
      }
      case FIXED32:
        this.#at += 4;
        break;
      default:
        throw damaged();
    }
    if (this.#at > this.#end) throw damaged();
    this.valueEnd = this.#at;
    return true;
  }

  /**
   * Reads a varint. A value above 2^53 is rounded. If it is a length, that does no harm, because such a length exceeds
   * the message, which is then rejected.
   */
  #varint(): number {
    let value = 0;
    let unit = 1;
    for (let count = 0; count < 10; count++) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined || this.#at > this.#end) throw damaged();
      value += (byte & 0x7f) * unit;
      if (byte < 0x80) return value;
      unit *= 0x80;
    }
    throw damaged();
  }
}

export function tooManyFields(limit: number): Error {
  return malformedMessage(`the request has more than ${limit} fields`);
}

function damaged(): Error {
  return malformedMessage("the request is not a valid protobuf message");
}

/**
 * Counts the fields of an undecoded message. Throws the error from `refusal` if there are more than `limit`, and
 * AgentError if the message is malformed.
 */
export function checkFieldCount(
  schema: DescMessage,
  bytes: Uint8Array,
  limit: number,
  refusal: (limit: number) => Error,
): void {
  if (bytes.length <= FEW_FIELDS_BYTES) return;
  /**
   * Counts the fields of a message and of its submessages. Returns how many of the `allowed` fields are left. The
   * recursion ends, because no message type contains itself.
   */
  const count = (of: DescMessage, fields: FieldCursor, allowed: number): number => {
    let left = allowed;
    while (fields.next()) {
      left -= 1;
      if (left < 0) throw refusal(limit);
      if (fields.wireType !== LENGTH_DELIMITED) continue;
      const { message } = of.fields.find(({ number }) => number === fields.number) ?? {};
      if (message) left = count(message, new FieldCursor(bytes, fields.valueStart, fields.valueEnd), left);
    }
    return left;
  };
  count(schema, new FieldCursor(bytes), limit);
}
