/** Wire type of bytes, text and messages (protobuf's encoding). */
export const LENGTH_DELIMITED = 2;

/** Takes no byte: what is written there is only counted. */
const NONE = new Uint8Array(0);

/** Writes an integer of up to 53 bits, or a negative one, which takes ten bytes. Returns where it ends. */
export function writeVarint(target: Uint8Array, at: number, value: number): number {
  let next = at;
  if (value < 0) {
    let rest = BigInt.asUintN(64, BigInt(value));
    for (; rest > 0x7fn; rest >>= 7n) target[next++] = Number(rest & 0x7fn) | 0x80;
    target[next++] = Number(rest);
    return next;
  }
  let rest = value;
  for (; rest > 0x7f; rest = Math.floor(rest / 128)) target[next++] = (rest % 128) | 0x80;
  target[next++] = rest;
  return next;
}

/** Writes a message directly into bytes, without a message object. */
export class FieldWriter {
  readonly #bytes: Buffer;
  #end: number;

  /**
   * @param sizeBytes that suffice
   * @param start where the message begins
   */
  constructor(sizeBytes: number, start = 0) {
    this.#bytes = Buffer.allocUnsafe(sizeBytes);
    this.#end = start;
  }

  /** Writes a field of any integer type except sint. Omits 0, as in proto3. */
  number(field: number, value: number): void {
    if (value !== 0) this.optionalNumber(field, value);
  }

  /** Writes an `optional` field of these types: 0 too. */
  optionalNumber(field: number, value: number): void {
    this.#end = writeVarint(this.#bytes, writeVarint(this.#bytes, this.#end, field * 8), value);
  }

  /**
   * Writes a field that is a message.
   *
   * @param likelyBytes its size; where it is far off, the message is moved once, to make room for its length
   */
  message(field: number, write: (writer: this) => void, likelyBytes = 0): void {
    const at = writeVarint(this.#bytes, this.#end, field * 8 + LENGTH_DELIMITED);
    const from = at + writeVarint(NONE, 0, likelyBytes);
    this.#end = from;
    write(this);
    const length = this.#end - from;
    const start = at + writeVarint(NONE, 0, length);
    if (start !== from) this.#bytes.copyWithin(start, from, this.#end);
    writeVarint(this.#bytes, at, length);
    this.#end = start + length;
  }

  /** Writes a field of bytes, a copy. Omits none, as in proto3. */
  bytes(field: number, value: Uint8Array): void {
    if (value.length === 0) return;
    const at = writeVarint(this.#bytes, this.#end, field * 8 + LENGTH_DELIMITED);
    const start = writeVarint(this.#bytes, at, value.length);
    this.#bytes.set(value, start);
    this.#end = start + value.length;
  }

  /** Writes a google.protobuf.Timestamp. */
  time(field: number, seconds: number, nanos: number): void {
    this.message(field, () => {
      this.number(1, seconds);
      this.number(2, nanos);
    });
  }

  /** Writes a field that is text of ASCII with less than 128 characters. */
  ascii(field: number, text: string): void {
    const at = writeVarint(this.#bytes, this.#end, field * 8 + LENGTH_DELIMITED);
    this.#bytes[at] = text.length;
    this.#end = at + 1 + this.#bytes.write(text, at + 1, "latin1");
  }

  /** What is written, and what is before it. */
  written(): Buffer {
    return this.#bytes.subarray(0, this.#end);
  }
}
