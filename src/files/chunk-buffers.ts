/** Largest piece of a file in one message. */
export const CHUNK_BYTES: number = 256 * 1024;
/** Size of a piece while memory is tight. */
export const TIGHT_CHUNK_BYTES: number = 64 * 1024;
/** Memory is tight while more than this is on loan. */
export const TIGHT_ABOVE_BYTES: number = 8 * 1024 * 1024;
/** Smallest buffer; a small file needs no large one. */
const SMALLEST_BYTES = 4 * 1024;
/** Full-size buffers kept for the next chunk while any is on loan. */
const KEPT_BUFFERS = 4;

/** A buffer on loan: give it back once. */
export interface ChunkBuffer {
  readonly bytes: Uint8Array;
  giveBack(): void;
}

/** Read buffers shared by all transfers: reused while files are read, gone when none is. */
export class ChunkBuffers {
  #free: Uint8Array[] = [];
  #lentBytes = 0;

  /** Bytes on loan. */
  get lentBytes(): number {
    return this.#lentBytes;
  }

  /** Lends a buffer for up to `wantedBytes`; it may be smaller. */
  lend(wantedBytes: number): ChunkBuffer {
    const most = this.#lentBytes > TIGHT_ABOVE_BYTES ? TIGHT_CHUNK_BYTES : CHUNK_BYTES;
    const sizeBytes = Math.max(SMALLEST_BYTES, Math.min(wantedBytes, most));
    const bytes = (sizeBytes === CHUNK_BYTES ? this.#free.pop() : undefined) ?? new Uint8Array(sizeBytes);
    this.#lentBytes += sizeBytes;
    let lent = true;
    return {
      bytes,
      giveBack: (): void => {
        if (!lent) return;
        lent = false;
        this.#lentBytes -= sizeBytes;
        if (this.#lentBytes === 0) this.#free = [];
        else if (sizeBytes === CHUNK_BYTES && this.#free.length < KEPT_BUFFERS) this.#free.push(bytes);
      },
    };
  }
}
