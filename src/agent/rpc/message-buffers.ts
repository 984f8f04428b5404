/** Buffers of smaller messages are not kept: Node has a pool for these. */
const SMALLEST_BYTES = 4 * 1024;
/** Buffers kept: one message is filled while another is in use. */
const KEPT_BUFFERS = 2;
/** Bytes kept: of a file, one batch is gathered while another is written. */
const KEPT_BYTES = 1280 * 1024;
/** What all requests together may keep: enough for as many writers as have large batches. */
const SPARE_LIMIT_BYTES: number = 16 * 1024 * 1024;

/** Bounds the memory that requests keep unused, for their next messages. */
export class SpareMemory {
  #leftBytes: number;

  constructor(limitBytes: number = SPARE_LIMIT_BYTES) {
    this.#leftBytes = limitBytes;
  }

  /** Counts bytes that are kept. False: they may not be. */
  keep(sizeBytes: number): boolean {
    if (sizeBytes > this.#leftBytes) return false;
    this.#leftBytes -= sizeBytes;
    return true;
  }

  /** Counts bytes as no longer kept. */
  use(sizeBytes: number): void {
    this.#leftBytes += sizeBytes;
  }
}

/** Buffers for one request's messages: a stream of large ones reuses a few, which V8 need not collect. */
export class MessageBuffers {
  readonly #spare: SpareMemory;
  /** Created with the first buffer: most requests are one small message and need none. */
  #lent: WeakMap<ArrayBuffer, number> | undefined;
  readonly #free: ArrayBuffer[] = [];
  #closed = false;

  constructor(spare: SpareMemory) {
    this.#spare = spare;
  }

  /** A buffer of exactly that length, with any content. */
  take(length: number): Uint8Array {
    if (length < SMALLEST_BYTES) return Buffer.allocUnsafe(length);
    const at = this.#free.findIndex((buffer) => buffer.byteLength >= length);
    const [reused] = at < 0 ? [] : this.#free.splice(at, 1);
    if (reused !== undefined) this.#spare.use(reused.byteLength);
    // A much larger buffer would keep unused memory.
    const fits = reused !== undefined && reused.byteLength <= 2 * length;
    const bytes = fits ? new Uint8Array(reused, 0, length) : Buffer.allocUnsafeSlow(length);
    (this.#lent ??= new WeakMap()).set(bytes.buffer, length);
    return bytes;
  }

  /**
   * Takes back an unused message, or any view of one. What it does not keep goes back to the system at once. Otherwise
   * the memory of many calls that are answered together would stay until V8 collects. Returns the message's length; 0
   * for bytes that it did not lend, which stay as they are.
   */
  release({ buffer }: Uint8Array): number {
    if (!(buffer instanceof ArrayBuffer)) return 0;
    const length = this.#lent?.get(buffer);
    if (length === undefined) return 0;
    this.#lent?.delete(buffer);
    if (!this.#keeps(buffer)) buffer.transfer(0);
    return length;
  }

  /**
   * Gives all unused memory back to the system, and keeps none from now on: what is lent goes there when it is
   * released.
   */
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
