/** Smaller messages are not worth keeping a buffer for. */
const SMALLEST_BYTES = 16 * 1024;
/** One message is filled while another is being used. */
const KEPT_BUFFERS = 2;

/**
 * Buffers for the messages of one request that did not come in one piece. A stream of large messages needs two of them
 * instead of one each, which V8 would have to find and free.
 */
export class MessageBuffers {
  /** Made with the first buffer: most requests are one small message, which needs none. */
  #lent: WeakSet<ArrayBufferLike> | undefined;
  readonly #free: ArrayBufferLike[] = [];

  /** A buffer of exactly that length, with any content. */
  take(length: number): Uint8Array {
    const at = this.#free.findIndex((buffer) => buffer.byteLength >= length);
    const [reused] = at < 0 ? [] : this.#free.splice(at, 1);
    // What is much too large would keep memory that nothing uses.
    const fits = reused !== undefined && reused.byteLength <= 2 * length;
    const bytes = fits ? new Uint8Array(reused, 0, length) : Buffer.allocUnsafeSlow(length);
    if (length >= SMALLEST_BYTES) (this.#lent ??= new WeakSet()).add(bytes.buffer);
    return bytes;
  }

  /** Takes a message back, or any view of it, that nobody looks at any more. Others' bytes are left alone. */
  giveBack(bytes: Uint8Array): void {
    if (this.#lent?.delete(bytes.buffer) === true && this.#free.length < KEPT_BUFFERS) this.#free.push(bytes.buffer);
  }
}
