/** Largest number of continuation bytes of a UTF-8 character. */
const CONTINUATION_BYTES = 3;

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

/** Returns `bytes` from `start` on. If `start` is inside a UTF-8 character, the rest of this character is skipped. */
function fromCharacter(bytes: Uint8Array, start: number): Uint8Array {
  let at = start;
  while (at < start + CONTINUATION_BYTES && isContinuation(bytes[at])) at++;
  return bytes.subarray(at);
}

/** Keeps the last bytes of an output in a ring buffer. */
export class Tail {
  readonly #ring: Uint8Array;
  /** Number of bytes that were pushed so far. */
  #total = 0;

  constructor(sizeBytes: number) {
    this.#ring = new Uint8Array(sizeBytes);
  }

  push(bytes: Uint8Array): void {
    const size = this.#ring.length;
    const kept = bytes.subarray(Math.max(0, bytes.length - size));
    const at = (this.#total + bytes.length - kept.length) % size;
    const untilEnd = kept.subarray(0, size - at);
    this.#ring.set(untilEnd, at);
    this.#ring.set(kept.subarray(untilEnd.length), 0);
    this.#total += bytes.length;
  }

  /**
   * Returns the kept bytes as valid UTF-8 of at most the buffer's size, without a partial character at the start. Each
   * invalid byte, and a partial character at the end, becomes U+FFFD.
   */
  text(): string {
    const size = this.#ring.length;
    const at = this.#total % size;
    const bytes =
      this.#total <= size
        ? this.#ring.subarray(0, this.#total)
        : fromCharacter(Buffer.concat([this.#ring.subarray(at), this.#ring.subarray(0, at)]), 0);
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
    const encoded = Buffer.from(text);
    return encoded.length <= size ? text : Buffer.from(fromCharacter(encoded, encoded.length - size)).toString();
  }
}
