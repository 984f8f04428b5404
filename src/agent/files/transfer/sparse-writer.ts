import type { Hash } from "node:crypto";
import { ftruncate, write } from "node:fs";
import { promisify } from "node:util";
import { SparseFile } from "../../../shared/sparse-file.ts";
import { negatedErrno, NO_SUM, type SummedBy, type SummingWriter } from "../../native/index.ts";

const writeDescriptor = promisify(write);
const setSize = promisify(ftruncate);

/** A SummingWriter that leaves out blocks of zeros. Hashes on the calling thread: most bytes are not written. */
export class SparseWriter implements SummingWriter {
  readonly #file: SparseFile;
  #hash: Hash | undefined;

  constructor(fd: number) {
    this.#file = new SparseFile({
      write: (...piece) => writeDescriptor(fd, ...piece),
      truncate: (sizeBytes) => setSize(fd, sizeBytes),
    });
  }

  async write(pieces: readonly Uint8Array[], sum: SummedBy): Promise<number> {
    try {
      for (const piece of pieces) {
        if (sum !== NO_SUM) {
          this.#hash ??= process.getBuiltinModule("node:crypto").createHash("sha256");
          this.#hash.update(piece);
        }
        await this.#file.write(piece);
      }
      return 0;
    } catch (error) {
      const errno = negatedErrno(error);
      if (errno === undefined) throw error;
      return errno;
    }
  }

  takeSha256(): Buffer | undefined {
    const { createHash } = process.getBuiltinModule("node:crypto");
    const hash = this.#hash ?? createHash("sha256");
    this.#hash = undefined;
    return hash.digest();
  }
}
