/** Largest piece of a file in one message. */
export const CHUNK_BYTES: number = 256 * 1024;
/** Size of a piece while memory is tight. */
export const TIGHT_CHUNK_BYTES: number = 64 * 1024;
/** Memory counts as tight while more than this is lent. */
export const TIGHT_ABOVE_BYTES: number = 2 * 1024 * 1024;
/** Smallest buffer; a small file needs no large one. */
const SMALLEST_BYTES = 4 * 1024;
/** Free buffers kept for the next chunks while any file is being read. */
const KEPT_BYTES: number = 8 * 1024 * 1024;

/** A lent buffer. Return it once. */
export interface ChunkBuffer {
  readonly bytes: Uint8Array;
  giveBack(): void;
}

/** Read buffers that all transfers share: reused while files are read, freed when no transfer is left. */
export class ChunkBuffers {
  /** By size: only the two usual sizes are kept. */
  readonly #free: ReadonlyMap<number, Uint8Array[]> = new Map([
    [CHUNK_BYTES, []],
    [TIGHT_CHUNK_BYTES, []],
  ]);
  #freeBytes = 0;
  #transfers = 0;
  #lentBytes = 0;

  /** True while so much is lent that each transfer should use one small chunk. */
  get tight(): boolean {
    return this.#lentBytes > TIGHT_ABOVE_BYTES;
  }

  /** Bytes that are lent now. */
  get lentBytes(): number {
    return this.#lentBytes;
  }

  /** Bytes kept for the next loans. */
  get freeBytes(): number {
    return this.#freeBytes;
  }

  /** Call it for every transfer before its first `lend`; call the returned function once when the transfer is over. */
  enter(): () => void {
    this.#transfers += 1;
    return () => {
      this.#transfers -= 1;
      if (this.#transfers === 0) this.#dropFree();
    };
  }

  /** Lends a buffer for up to `wantedBytes`; it may be smaller. */
  lend(wantedBytes: number): ChunkBuffer {
    const most = this.tight ? TIGHT_CHUNK_BYTES : CHUNK_BYTES;
    const sizeBytes = Math.max(SMALLEST_BYTES, Math.min(wantedBytes, most));
    const bytes = this.#takeFree(sizeBytes) ?? new Uint8Array(sizeBytes);
    this.#lentBytes += sizeBytes;
    let lent = true;
    return {
      bytes,
      giveBack: (): void => {
        if (!lent) return;
        lent = false;
        this.#lentBytes -= sizeBytes;
        this.#keep(bytes);
      },
    };
  }

  #takeFree(sizeBytes: number): Uint8Array | undefined {
    const bytes = this.#free.get(sizeBytes)?.pop();
    if (bytes !== undefined) this.#freeBytes -= sizeBytes;
    return bytes;
  }

  #keep(bytes: Uint8Array): void {
    if (this.#transfers === 0) return;
    const buffers = this.#free.get(bytes.length);
    if (buffers === undefined || this.#freeBytes + bytes.length > KEPT_BYTES) return;
    buffers.push(bytes);
    this.#freeBytes += bytes.length;
  }

  #dropFree(): void {
    for (const buffers of this.#free.values()) buffers.length = 0;
    this.#freeBytes = 0;
  }
}
