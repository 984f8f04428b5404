/** Smallest buffer that is kept for reuse. Node allocates smaller buffers from its own pool. */
const SMALLEST_BYTES = 4 * 1024;
/**
 * Number of buffers that a request may keep for reuse, whatever their size. Two suffice: one receives the next message
 * while the handler uses the previous message in the other one.
 */
const KEPT_BUFFERS = 2;
/**
 * A request may keep more free buffers than KEPT_BUFFERS if their total size is at most this limit. The limit is enough
 * for two batches of a file: one batch is collected while the other one is written.
 */
const KEPT_BYTES = 1280 * 1024;
/** Limit for the free buffers of all requests together. It suffices for the writers that may use large batches. */
const SPARE_LIMIT_BYTES: number = 16 * 1024 * 1024;

/** Limits the memory of free buffers. Requests keep free buffers to reuse them for their next messages. */
export class SpareMemory {
  #leftBytes: number;

  constructor(limitBytes: number = SPARE_LIMIT_BYTES) {
    this.#leftBytes = limitBytes;
  }

  /** Reserves memory to keep. Returns false if the limit is reached. */
  keep(sizeBytes: number): boolean {
    if (sizeBytes > this.#leftBytes) return false;
    this.#leftBytes -= sizeBytes;
    return true;
  }

  /**
   * Call it when kept memory is used again by a request, or was returned to the system. The memory then no longer
   * counts as kept.
   */
  use(sizeBytes: number): void {
    this.#leftBytes += sizeBytes;
  }
}

/** Reuses buffers for the messages of one request, so that a stream of large messages causes no garbage. */
export class MessageBuffers {
  readonly #spare: SpareMemory;
  /**
   * Message length of each buffer in use. Created on demand, because most requests are one small message without a
   * buffer.
   */
  #lent: WeakMap<ArrayBuffer, number> | undefined;
  readonly #free: ArrayBuffer[] = [];
  #closed = false;

  constructor(spare: SpareMemory) {
    this.#spare = spare;
  }

  /** Returns a buffer of exactly this length with arbitrary content. */
  take(length: number): Uint8Array {
    if (length < SMALLEST_BYTES) return Buffer.allocUnsafe(length);
    const at = this.#free.findIndex((buffer) => buffer.byteLength >= length);
    const [reused] = at < 0 ? [] : this.#free.splice(at, 1);
    if (reused !== undefined) this.#spare.use(reused.byteLength);
    // A buffer of more than twice the required size is not reused, because it would waste memory.
    const fits = reused !== undefined && reused.byteLength <= 2 * length;
    const bytes = fits ? new Uint8Array(reused, 0, length) : Buffer.allocUnsafeSlow(length);
    (this.#lent ??= new WeakMap()).set(bytes.buffer, length);
    return bytes;
  }

  /**
   * Takes back a message, or any view of it, and returns its length. Does nothing and returns 0 for bytes that are not
   * from this pool. Memory that is not kept is returned to the system at once, instead of when V8 collects garbage.
   */
  release({ buffer }: Uint8Array): number {
    if (!(buffer instanceof ArrayBuffer)) return 0;
    const length = this.#lent?.get(buffer);
    if (length === undefined) return 0;
    this.#lent?.delete(buffer);
    if (!this.#keeps(buffer)) buffer.transfer(0);
    return length;
  }

  /** Returns all free memory to the system and keeps none from now on. */
  close(): void {
    this.#closed = true;
    for (const buffer of this.#free.splice(0)) {
      this.#spare.use(buffer.byteLength);
      buffer.transfer(0);
    }
  }

  #keeps(buffer: ArrayBuffer): boolean {
    const keptBytes = this.#free.reduce((sum, { byteLength }) => sum + byteLength, buffer.byteLength);
    const isWanted = !this.#closed && (this.#free.length < KEPT_BUFFERS || keptBytes <= KEPT_BYTES);
    if (!isWanted || !this.#spare.keep(buffer.byteLength)) return false;
    this.#free.push(buffer);
    return true;
  }
}
