import type { BufferPool, BorrowedBytes } from "../../domain/index.ts";

/** Smaller chunks are copied, so that a few bytes do not keep a whole buffer in use. */
const COPY_BELOW_BYTES = 4096;

/**
 * Limits the number of chunks that a receiver has not released. At `limit` chunks, reading stops. While memory is
 * tight, the limit is one chunk.
 */
export class HeldChunks {
  readonly #pool: BufferPool;
  readonly #most: number;
  readonly #onReleased: () => void;
  #count = 0;

  constructor(pool: BufferPool, limit: number, onReleased: () => void) {
    this.#pool = pool;
    this.#most = limit;
    this.#onReleased = onReleased;
  }

  get hasRoom(): boolean {
    return this.#count < (this.#pool.tight ? 1 : this.#most);
  }

  /** Passes the first `count` bytes of a buffer to the receiver, which must release them. */
  give(buffer: BorrowedBytes, count: number, chunk: (bytes: Uint8Array, release: () => void) => void): void {
    const isSmall = count < COPY_BELOW_BYTES;
    const bytes = isSmall ? buffer.bytes.slice(0, count) : buffer.bytes.subarray(0, count);
    if (isSmall) buffer.release();
    let held = true;
    this.#count++;
    chunk(bytes, () => {
      if (!held) return;
      held = false;
      buffer.release();
      this.#count--;
      this.#onReleased();
    });
  }
}
