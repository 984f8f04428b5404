import type { DescMessage } from "@bufbuild/protobuf";
import { LENGTH_DELIMITED } from "../../shared/field-writer.ts";
import { malformedMessage } from "./framing.ts";

/** Wire types of protobuf's encoding. Groups (3 and 4) are not in proto3. */
export const VARINT = 0;
const FIXED64 = 1;
const FIXED32 = 5;

/**
 * Most fields of a request, with those of its inner messages. The largest legal request has about a dozen; 4 MiB can
 * hold two million empty ones, and the decoder would make an object for each. Bulk fields have readers of their own.
 */
export const FIELD_LIMIT = 1_024;
/** A message up to this size cannot have too many fields. */
const FEW_FIELDS_BYTES: number = 2 * FIELD_LIMIT;

/** Walks over the fields of a message without allocating objects. Throws AgentError for malformed bytes. */
export class FieldCursor {
  readonly #bytes: Uint8Array;
  readonly #end: number;
  #at: number;
  /** Number, wire type and start of the field that `next` found. */
  number = 0;
  wireType = 0;
  start = 0;
  /** Where its value is, without a length prefix. */
  valueStart = 0;
  valueEnd = 0;
  /** Of an integer, exact up to 2^53. */
  value = 0;

  constructor(bytes: Uint8Array, start = 0, end: number = bytes.length) {
    this.#bytes = bytes;
    this.#at = start;
    this.#end = end;
  }

  /** Goes to the next field; false at the end. */
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

  /** Exact up to 2^53; a larger length does not fit into the message anyway. */
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

/** The refusal of a message with more fields than `limit`. */
export function tooManyFields(limit: number): Error {
  return malformedMessage(`the request has more than ${limit} fields; no request needs as many`);
}

function damaged(): Error {
  return malformedMessage("the request is damaged: its bytes are no protobuf message");
}

/** Throws `refusal` for a message of more fields than `limit`, before it is decoded; AgentError for a malformed one. */
export function checkFieldCount(
  schema: DescMessage,
  bytes: Uint8Array,
  limit: number,
  refusal: (limit: number) => Error,
): void {
  if (bytes.length <= FEW_FIELDS_BYTES) return;
  /** Returns how many more fields are allowed. Terminates, because no message of the schema contains itself. */
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
