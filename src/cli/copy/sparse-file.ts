import type { FileHandle } from "node:fs/promises";

/** Pieces that are looked at: the blocks of most file systems. */
const BLOCK_BYTES = 4096;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

/**
 * Writes a new file from its beginning to its end. Blocks of zeros are left out: a sparse file of a sandbox, whose holes
 * arrive as zeros, takes no more room here than it does there.
 */
export class SparseFile {
  readonly #file: FileHandle;
  #sizeBytes = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  /** Appends. */
  async write(bytes: Uint8Array): Promise<void> {
    let from = 0;
    for (let at = 0; at < bytes.length;) {
      const end = Math.min(bytes.length, at + BLOCK_BYTES - ((this.#sizeBytes + at) % BLOCK_BYTES));
      // What comes in parts of a block is left out in parts.
      const isHole = ZEROS.subarray(0, end - at).equals(bytes.subarray(at, end));
      if (isHole) {
        await this.#writeAll(bytes.subarray(from, at), this.#sizeBytes + from);
        from = end;
      }
      at = end;
    }
    await this.#writeAll(bytes.subarray(from), this.#sizeBytes + from);
    this.#sizeBytes += bytes.length;
  }

  /** Gives the file its size, as a hole at its end would be missing. */
  async end(): Promise<void> {
    await this.#file.truncate(this.#sizeBytes);
  }

  async #writeAll(bytes: Uint8Array, position: number): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      at += (await this.#file.write(bytes, at, bytes.length - at, position + at)).bytesWritten;
    }
  }
}
