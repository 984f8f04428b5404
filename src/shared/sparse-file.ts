/** What becomes a hole, whole or not at all: the blocks of most file systems. */
const BLOCK_BYTES = 4096;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

/** Whether the beginning of a file has a block of zeros. */
export function hasHole(bytes: Buffer): boolean {
  for (let at = 0; at < bytes.length; at += BLOCK_BYTES) {
    const block = bytes.subarray(at, at + BLOCK_BYTES);
    if (block[0] === 0 && ZEROS.subarray(0, block.length).equals(block)) return true;
  }
  return false;
}

/** Where the bytes go: the part of a FileHandle of Node that is needed. Rejects with the error of the failed call. */
export interface SparseTarget {
  write(
    bytes: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
  truncate(sizeBytes: number): Promise<void>;
}

/** Writes a new file from beginning to end, and leaves out blocks of zeros, which become holes. */
export class SparseFile {
  readonly #target: SparseTarget;
  #sizeBytes = 0;

  constructor(target: SparseTarget) {
    this.#target = target;
  }

  /** Appends. The caller may reuse the bytes once it resolves. */
  async write(bytes: Uint8Array): Promise<void> {
    const start = this.#sizeBytes;
    this.#sizeBytes += bytes.length;
    let writtenTo = 0;
    for (let at = 0; at < bytes.length;) {
      // A block that arrives in parts is compared in parts.
      const end = Math.min(bytes.length, at + BLOCK_BYTES - ((start + at) % BLOCK_BYTES));
      if (ZEROS.subarray(0, end - at).equals(bytes.subarray(at, end))) {
        await this.#writeAll(bytes.subarray(writtenTo, at), start + writtenTo);
        writtenTo = end;
      }
      at = end;
    }
    await this.#writeAll(bytes.subarray(writtenTo), start + writtenTo);
    // Only the file's size makes a hole at the end.
    if (writtenTo === bytes.length) await this.#target.truncate(this.#sizeBytes);
  }

  /** Appends zeros, which become a hole. */
  async skip(bytes: number): Promise<void> {
    this.#sizeBytes += bytes;
    await this.#target.truncate(this.#sizeBytes);
  }

  async #writeAll(bytes: Uint8Array, position: number): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      at += (await this.#target.write(bytes, at, bytes.length - at, position + at)).bytesWritten;
    }
  }
}
