import { closeSync, openSync, readSync } from "node:fs";
import { isHole, type Piece, withHoles } from "./holes.ts";

/** A file of at most this size is read in one piece. */
export const SMALL_BYTES: number = 64 * 1024;
const CHUNK_BYTES = 256 * 1024;
/**
 * Size of each read of a sparse file. All reads use one large buffer, because most of the data is zeros, which become
 * holes and are not copied.
 */
const SPARSE_CHUNK_BYTES = 4 * 1024 * 1024;

/**
 * Yields the first `sizeBytes` of a local file. Yields less if the file has become shorter, and ignores the rest if it
 * has grown. Each chunk has memory of its own, which can be transferred to another thread.
 */
export async function* fileContent(path: string | Buffer, sizeBytes: number): AsyncGenerator<Buffer> {
  yield* chunksOf(path, sizeBytes, () => Buffer.allocUnsafeSlow(CHUNK_BYTES));
}

/**
 * Like `fileContent`, with holes. A run of zeros counts as a hole, because Node cannot query holes (SEEK_HOLE of
 * lseek(2)).
 */
export async function* sparseContent(path: string | Buffer, sizeBytes: number): AsyncGenerator<Piece> {
  // Pieces are copies, because `buffer` is overwritten by the next read.
  const buffer = Buffer.allocUnsafe(Math.min(SPARSE_CHUNK_BYTES, sizeBytes));
  async function* chunks(): AsyncGenerator<Buffer> {
    yield* chunksOf(path, sizeBytes, () => buffer);
  }
  for await (const piece of withHoles(chunks())) yield isHole(piece) ? piece : copyOf(piece);
}

/**
 * Returns a copy with memory of its own. Buffer.from is not used, because its memory may belong to Node's pool of
 * buffers, which cannot be transferred.
 */
function copyOf(piece: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(piece.length);
  copy.set(piece);
  return copy;
}

function* chunksOf(path: string | Buffer, sizeBytes: number, memory: () => Buffer): Generator<Buffer> {
  if (sizeBytes === 0) return;
  const fd = openSync(path, "r");
  try {
    for (let left = sizeBytes, count = -1; left > 0 && count !== 0; left -= count) {
      const bytes = memory();
      count = readSync(fd, bytes, 0, Math.min(bytes.length, left), null);
      if (count > 0) yield bytes.subarray(0, count);
    }
  } finally {
    closeSync(fd);
  }
}

/**
 * Reads the beginning of a file into `bytes`. Returns how many bytes were read: fewer than requested if the file has
 * become shorter.
 */
export function readStart(path: string | Buffer, bytes: Buffer): number {
  const fd = bytes.length === 0 ? undefined : openSync(path, "r");
  if (fd === undefined) return 0;
  try {
    let filled = 0;
    for (let count = -1; count !== 0 && filled < bytes.length; filled += count)
      count = readSync(fd, bytes, filled, bytes.length - filled, null);
    return filled;
  } finally {
    closeSync(fd);
  }
}
