/** A buffer from the pool. Return it once, by `giveBack`. */
export interface LentBuffer {
  /** Not a Buffer, whose `slice` does not copy. */
  readonly bytes: Uint8Array;
  giveBack(): void;
}

/** Size of a buffer in normal times: the capacity of a pipe. */
export const BUFFER_BYTES: number = 64 * 1024;
/** Size of a buffer while memory is tight. */
export const TIGHT_BUFFER_BYTES: number = 16 * 1024;
/** Memory counts as tight while more than this is lent. */
export const TIGHT_ABOVE_BYTES: number = 4 * 1024 * 1024;
/** Free buffers kept for the next reader, enough for two busy streams. The rest is freed. */
const KEPT_BUFFERS = 4;

/** Read buffers that all streams of the process share: idle streams hold none, busy ones need not allocate. */
export class BufferPool {
  readonly #free: Uint8Array[] = [];
  #lentBytes = 0;

  /** True while so much is lent that each stream should use one small chunk. */
  get tight(): boolean {
    return this.#lentBytes > TIGHT_ABOVE_BYTES;
  }

  /** Bytes that are lent now. */
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
