import type { Hash } from "node:crypto";
import { ftruncate, write, writev } from "node:fs";
import { promisify } from "node:util";
import { SparseFile } from "../../../shared/sparse-file.ts";

const writePiece = promisify(write);
const writePieces = promisify(writev);
const setSize = promisify(ftruncate);

export interface NewFileOptions {
  /** Whether to turn blocks of zeros into holes. */
  readonly sparse: boolean;
  readonly sha256: boolean;
}

/** Appends to a new file and computes its SHA-256. Hashing runs on this thread while another thread writes. */
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

  /**
   * Appends the pieces, whose memory may be reused once the promise resolves. Rejects with the error of the system
   * call.
   */
  async write(pieces: readonly Uint8Array[]): Promise<void> {
    const written = this.#append(pieces);
    for (const piece of pieces) this.#hash?.update(piece);
    await written;
  }

  /** Appends a hole to a sparse file. Rejects with the error of the system call. */
  async skip(bytes: number): Promise<void> {
    await this.#sparse?.skip(bytes);
  }

  /** Returns the SHA-256 of everything written, or undefined if it was not requested. May be called only once. */
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
      // If the disk becomes full, the kernel writes only a part and reports no error. The next write then fails with
      // the error.
      for (let [piece] = rest; piece !== undefined && bytesWritten > 0; [piece] = rest) {
        if (bytesWritten < piece.length) rest[0] = piece.subarray(bytesWritten);
        else rest.shift();
        bytesWritten -= Math.min(bytesWritten, piece.length);
      }
    }
  }
}
