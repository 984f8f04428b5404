/** A buffer on loan: give it back once, by `giveBack`. */
export interface LentBuffer {
  /** No Buffer: the `slice` of those does not copy. */
  readonly bytes: Uint8Array;
  giveBack(): void;
}

/** Size of a buffer in normal times: what a pipe holds. */
export const BUFFER_BYTES: number = 64 * 1024;
/** Size of a buffer while memory is tight. */
export const TIGHT_BUFFER_BYTES: number = 16 * 1024;
/** Memory is tight while more than this is on loan. */
export const TIGHT_ABOVE_BYTES: number = 4 * 1024 * 1024;
/** Free buffers kept for the next reader: enough for two busy streams; the rest goes back to the system. */
const KEPT_BUFFERS = 4;

/** Read buffers shared by all streams of the process, so that idle streams hold none and busy ones do not allocate. */
export class BufferPool {
  readonly #free: Uint8Array[] = [];
  #lentBytes = 0;

  /** So much is on loan that each stream should make do with one small chunk. */
  get tight(): boolean {
    return this.#lentBytes > TIGHT_ABOVE_BYTES;
  }

  /** Bytes on loan. */
  get lentBytes(): number {
    return this.#lentBytes;
  }

  lend(): LentBuffer {
    const sizeBytes = this.tight ? TIGHT_BUFFER_BYTES : BUFFER_BYTES;
    const bytes = (sizeBytes === BUFFER_BYTES ? this.#free.pop() : undefined) ?? new Uint8Array(sizeBytes);
    this.#lentBytes += sizeBytes;
    let lent = true;
    return {
      bytes,
      giveBack: (): void => {
        if (!lent) return;
        lent = false;
        this.#lentBytes -= sizeBytes;
        if (sizeBytes === BUFFER_BYTES && this.#free.length < KEPT_BUFFERS) this.#free.push(bytes);
      },
    };
  }
}
