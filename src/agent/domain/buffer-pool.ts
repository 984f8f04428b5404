import { type BorrowedBytes, BorrowedBuffer } from "./incoming.ts";

/** Sizes of the buffers of a BufferPool, and limits for its memory. */
export interface BufferPoolSizes {
  /** Regular size of a buffer, which is also the largest size. */
  readonly fullBytes: number;
  /** Size of a buffer while more than `tightAboveBytes` are in use. */
  readonly tightBytes: number;
  readonly tightAboveBytes: number;
  /** Total size of the free buffers that are kept while any transfer runs. */
  readonly keptBytes: number;
  /** Total size of the free buffers that are kept while no transfer runs. */
  readonly keptAtRestBytes: number;
}

/** Smallest size of a buffer, which suffices for a small file. */
const SMALLEST_BYTES = 4 * 1024;

/**
 * Buffers for reading, which many streams or transfers share. A stream holds a buffer only while it has data, so an
 * idle stream holds none.
 */
export class BufferPool {
  readonly #sizes: BufferPoolSizes;
  /** Free buffers of `fullBytes` each, and of `tightBytes` each. Buffers of other sizes are not kept. */
  readonly #full: Uint8Array[] = [];
  readonly #tight: Uint8Array[] = [];
  #users = 0;
  #borrowedBytes = 0;
  #freeBytes = 0;

  constructor(sizes: BufferPoolSizes) {
    this.#sizes = sizes;
  }

  /** Whether more than `tightAboveBytes` are in use. Each user should then acquire only one buffer, which is small. */
  get tight(): boolean {
    return this.#borrowedBytes > this.#sizes.tightAboveBytes;
  }

  get borrowedBytes(): number {
    return this.#borrowedBytes;
  }

  get freeBytes(): number {
    return this.#freeBytes;
  }

  /**
   * Announces a transfer. Call it before the transfer acquires its first buffer. When the transfer has ended, call the
   * function that this method has returned.
   */
  enter(): () => void {
    this.#users += 1;
    return () => {
      this.#users -= 1;
      if (this.#users > 0) return;
      while (this.#freeBytes > this.#sizes.keptAtRestBytes) {
        this.#freeBytes -= (this.#full.pop() ?? this.#tight.pop())?.length ?? this.#freeBytes;
      }
    };
  }

  /**
   * Returns a buffer, which may be smaller than `wantedBytes`. The caller must release it. It is a plain Uint8Array,
   * because callers rely on `slice` to copy, and `slice` of a Node Buffer does not copy.
   */
  acquire(wantedBytes: number = this.#sizes.fullBytes): BorrowedBytes {
    const { fullBytes, tightBytes } = this.#sizes;
    const sizeBytes = Math.max(SMALLEST_BYTES, Math.min(wantedBytes, this.tight ? tightBytes : fullBytes));
    const bytes = this.#takeFree(sizeBytes) ?? new Uint8Array(sizeBytes);
    this.#borrowedBytes += sizeBytes;
    return new BorrowedBuffer(bytes, this.#reclaim);
  }

  readonly #reclaim = (bytes: Uint8Array): void => {
    this.#borrowedBytes -= bytes.length;
    this.#keep(bytes);
  };

  #takeFree(sizeBytes: number): Uint8Array | undefined {
    const bytes = this.#freeOf(sizeBytes)?.pop();
    if (bytes !== undefined) this.#freeBytes -= sizeBytes;
    return bytes;
  }

  #keep(bytes: Uint8Array): void {
    const { keptBytes, keptAtRestBytes } = this.#sizes;
    const free = this.#freeOf(bytes.length);
    const limitBytes = this.#users > 0 ? keptBytes : keptAtRestBytes;
    if (free === undefined || this.#freeBytes + bytes.length > limitBytes) return;
    free.push(bytes);
    this.#freeBytes += bytes.length;
  }

  #freeOf(sizeBytes: number): Uint8Array[] | undefined {
    if (sizeBytes === this.#sizes.fullBytes) return this.#full;
    return sizeBytes === this.#sizes.tightBytes ? this.#tight : undefined;
  }
}
