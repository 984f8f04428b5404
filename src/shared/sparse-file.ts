/** The block size of most file systems. Only whole blocks can become holes. */
const BLOCK_BYTES = 4096;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

/** Whether at least one block contains only zeros. `bytes` must be the beginning of a file. */
export function hasHole(bytes: Buffer): boolean {
  for (let at = 0; at < bytes.length; at += BLOCK_BYTES) {
    const block = bytes.subarray(at, at + BLOCK_BYTES);
    if (block[0] === 0 && ZEROS.subarray(0, block.length).equals(block)) return true;
  }
  return false;
}

/**
 * The methods of Node's FileHandle that are used to write the file. Each rejects with the error of the failed system
 * call.
 */
export interface SparseTarget {
  write(
    bytes: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
  truncate(sizeBytes: number): Promise<void>;
}

/** Writes a new file from beginning to end. Blocks of zeros are not written, so that they become holes. */
export class SparseFile {
  readonly #target: SparseTarget;
  #sizeBytes = 0;

  constructor(target: SparseTarget) {
    this.#target = target;
  }

  /** Appends bytes. The caller may reuse their memory when this resolves. */
  async write(bytes: Uint8Array): Promise<void> {
    const start = this.#sizeBytes;
    this.#sizeBytes += bytes.length;
    let writtenTo = 0;
    for (let at = 0; at < bytes.length;) {
      // A block that arrives in several parts is compared part by part.
      const end = Math.min(bytes.length, at + BLOCK_BYTES - ((start + at) % BLOCK_BYTES));
      if (ZEROS.subarray(0, end - at).equals(bytes.subarray(at, end))) {
        await this.#writeAll(bytes.subarray(writtenTo, at), start + writtenTo);
        writtenTo = end;
      }
      at = end;
    }
    await this.#writeAll(bytes.subarray(writtenTo), start + writtenTo);
    // A hole at the end of the file is created by setting the size of the file.
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
