import type { BufferPool, LentBytes } from "../../domain/index.ts";

/** Smaller chunks are copied, so that a few bytes do not tie up a whole buffer. */
const COPY_BELOW_BYTES = 4096;

/** The chunks that a receiver holds: reading stops while they are many, or are any while memory is tight. */
export class HeldChunks {
  readonly #pool: BufferPool;
  readonly #most: number;
  readonly #onReleased: () => void;
  #count = 0;

  constructor(pool: BufferPool, most: number, onReleased: () => void) {
    this.#pool = pool;
    this.#most = most;
    this.#onReleased = onReleased;
  }

  get hasRoom(): boolean {
    return this.#count < (this.#pool.tight ? 1 : this.#most);
  }

  /** Hands the first bytes of a buffer out, which their receiver releases. */
  give(buffer: LentBytes, count: number, chunk: (bytes: Uint8Array, release: () => void) => void): void {
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
