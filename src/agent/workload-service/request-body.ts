import { MESSAGE_LIMIT_BYTES } from "./limits.ts";

/** Largest body: a message and gRPC's prefix of 5 bytes. A longer body is refused without reading the rest. */
const BODY_LIMIT_BYTES = MESSAGE_LIMIT_BYTES + 5;

/** Collects the body of a request up to the limit. A client that sends more is answered without waiting for the end. */
export class RequestBody {
  /**
   * All pieces are copied to one buffer, which grows: a piece may be a single byte, and a buffer for each piece would
   * take a hundred times the memory.
   */
  #bytes = Buffer.allocUnsafeSlow(256);
  readonly #whole: (body: Buffer) => void;
  #sizeBytes = 0;
  #isWhole = false;

  constructor(whole: (body: Buffer) => void) {
    this.#whole = whole;
  }

  /** Appends a copy of the piece, up to the limit. */
  add(piece: Buffer): void {
    if (this.#isWhole) return;
    const endBytes = this.#sizeBytes + piece.length;
    if (endBytes > this.#bytes.length) {
      const larger = Buffer.allocUnsafeSlow(2 * endBytes);
      this.#bytes.copy(larger, 0, 0, this.#sizeBytes);
      this.#bytes = larger;
    }
    piece.copy(this.#bytes, this.#sizeBytes);
    this.#sizeBytes = endBytes;
    if (endBytes > BODY_LIMIT_BYTES) this.end();
  }

  end(): void {
    if (this.#isWhole) return;
    this.#isWhole = true;
    this.#whole(this.#bytes.subarray(0, this.#sizeBytes));
  }
}
