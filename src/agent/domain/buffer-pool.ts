import { type LentBytes, Loan } from "./incoming.ts";

/** Sizes of a pool's buffers, and how many of them it keeps. All in bytes. */
export interface BufferPoolSizes {
  /** Size of a buffer in normal times; no loan is larger. */
  readonly fullBytes: number;
  /** Size of a buffer while memory is tight: while more than `tightAboveBytes` is on loan. */
  readonly tightBytes: number;
  readonly tightAboveBytes: number;
  /** Free buffers kept for the next loans while a transfer runs. */
  readonly keptBytes: number;
  /** Free buffers kept while none runs. */
  readonly keptAtRestBytes: number;
}

/** Smallest buffer: a small file needs no large one. */
const SMALLEST_BYTES = 4 * 1024;

/** Read buffers that several streams or transfers share, so that idle ones hold none and busy ones do not allocate. */
export class BufferPool {
  readonly #sizes: BufferPoolSizes;
  /** Of full size, and of tight size. Others are not kept. */
  readonly #full: Uint8Array[] = [];
  readonly #tight: Uint8Array[] = [];
  #users = 0;
  #lentBytes = 0;
  #freeBytes = 0;

  constructor(sizes: BufferPoolSizes) {
    this.#sizes = sizes;
  }

  /** Whether so many bytes are on loan that each user should take only one small buffer. */
  get tight(): boolean {
    return this.#lentBytes > this.#sizes.tightAboveBytes;
  }

  get lentBytes(): number {
    return this.#lentBytes;
  }

  /** Bytes kept for the next loans. */
  get freeBytes(): number {
    return this.#freeBytes;
  }

  /** Call this before the first loan of a transfer; call the returned function once when the transfer is over. */
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

  /** Lends a buffer for up to `wantedBytes`; it may be smaller. Its bytes are no Buffer, whose `slice` does not copy. */
  lend(wantedBytes: number = this.#sizes.fullBytes): LentBytes {
    const { fullBytes, tightBytes } = this.#sizes;
    const sizeBytes = Math.max(SMALLEST_BYTES, Math.min(wantedBytes, this.tight ? tightBytes : fullBytes));
    const bytes = this.#takeFree(sizeBytes) ?? new Uint8Array(sizeBytes);
    this.#lentBytes += sizeBytes;
    return new Loan(bytes, this.#takeBack);
  }

  readonly #takeBack = (bytes: Uint8Array): void => {
    this.#lentBytes -= bytes.length;
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
