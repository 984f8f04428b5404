import type { Hash } from "node:crypto";
import { ftruncate, write } from "node:fs";
import { promisify } from "node:util";
import { NO_SUM, type SummedBy, type SummingWriter } from "../../native/index.ts";

const writeDescriptor = promisify(write);
const setSize = promisify(ftruncate);

/** What becomes a hole, whole or not at all: the blocks of most file systems. */
const BLOCK_BYTES = 4096;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

/**
 * Appends to a file as a SummingWriter does, but leaves blocks of zeros out. It hashes on the calling thread: a sparse file
 * is mostly bytes that are not written.
 */
export class SparseWriter implements SummingWriter {
  readonly #fd: number;
  #sizeBytes = 0;
  #hash: Hash | undefined;

  constructor(fd: number) {
    this.#fd = fd;
  }

  /** Rejects with the error of the system call that failed. */
  async write(pieces: readonly Uint8Array[], sum: SummedBy): Promise<number> {
    for (const piece of pieces) {
      if (sum !== NO_SUM) {
        this.#hash ??= process.getBuiltinModule("node:crypto").createHash("sha256");
        this.#hash.update(piece);
      }
      await this.#writePiece(piece);
    }
    return 0;
  }

  takeSha256(): Buffer | undefined {
    const { createHash } = process.getBuiltinModule("node:crypto");
    const hash = this.#hash ?? createHash("sha256");
    this.#hash = undefined;
    return hash.digest();
  }

  async #writePiece(bytes: Uint8Array): Promise<void> {
    const start = this.#sizeBytes;
    this.#sizeBytes += bytes.length;
    let writtenTo = 0;
    for (let at = 0; at < bytes.length;) {
      const end = Math.min(bytes.length, at + BLOCK_BYTES - ((start + at) % BLOCK_BYTES));
      if (ZEROS.subarray(0, end - at).equals(bytes.subarray(at, end))) {
        await this.#writeAll(bytes.subarray(writtenTo, at), start + writtenTo);
        writtenTo = end;
      }
      at = end;
    }
    await this.#writeAll(bytes.subarray(writtenTo), start + writtenTo);
    // A hole at the end is there only by the file's size.
    if (writtenTo === bytes.length) await setSize(this.#fd, this.#sizeBytes);
  }

  async #writeAll(bytes: Uint8Array, position: number): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      at += (await writeDescriptor(this.#fd, bytes, at, bytes.length - at, position + at)).bytesWritten;
    }
  }
}
