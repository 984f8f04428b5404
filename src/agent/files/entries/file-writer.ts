import type { Hash } from "node:crypto";
import { ftruncate, write, writev } from "node:fs";
import { promisify } from "node:util";
import { SparseFile } from "../../../shared/sparse-file.ts";

const writePiece = promisify(write);
const writePieces = promisify(writev);
const setSize = promisify(ftruncate);

/** How a new file is written. */
export interface NewFileOptions {
  /** Blocks of zeros become holes. */
  readonly sparse: boolean;
  readonly sha256: boolean;
}

/** Appends to a new file, and hashes what it appends: here, while a thread writes it. */
export class FileWriter {
  readonly #fd: number;
  readonly #sparse: SparseFile | undefined;
  readonly #hash: Hash | undefined;

  constructor(fd: number, { sparse, sha256 }: NewFileOptions) {
    this.#fd = fd;
    if (sparse)
      this.#sparse = new SparseFile({
        write: (...piece) => writePiece(fd, ...piece),
        truncate: (sizeBytes) => setSize(fd, sizeBytes),
      });
    if (sha256) this.#hash = process.getBuiltinModule("node:crypto").createHash("sha256");
  }

  /** The pieces may change once it resolves. Rejects with the error of the failed system call. */
  async write(pieces: readonly Uint8Array[]): Promise<void> {
    const written = this.#append(pieces);
    for (const piece of pieces) this.#hash?.update(piece);
    await written;
  }

  /** Appends a hole to a sparse file. Rejects with the error of the failed system call. */
  async skip(bytes: number): Promise<void> {
    await this.#sparse?.skip(bytes);
  }

  /** SHA-256 of all that was written; undefined where nobody wants it. Call it once. */
  sha256(): Buffer | undefined {
    return this.#hash?.digest();
  }

  async #append(pieces: readonly Uint8Array[]): Promise<void> {
    if (this.#sparse === undefined) return this.#appendAll(pieces);
    for (const piece of pieces) await this.#sparse.write(piece);
  }

  async #appendAll(pieces: readonly Uint8Array[]): Promise<void> {
    const rest = pieces.filter(({ length }) => length > 0);
    while (rest.length > 0) {
      let { bytesWritten } = await writePieces(this.#fd, rest);
      // A disk that fills up takes a part first: the next call says why it takes no more.
      for (let [piece] = rest; piece !== undefined && bytesWritten > 0; [piece] = rest) {
        if (bytesWritten < piece.length) rest[0] = piece.subarray(bytesWritten);
        else rest.shift();
        bytesWritten -= Math.min(bytesWritten, piece.length);
      }
    }
  }
}
