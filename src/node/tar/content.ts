import { closeSync, createReadStream, openSync, readSync } from "node:fs";
import { open } from "node:fs/promises";
import { isHole, type Piece, withHoles } from "./holes.ts";

/**
 * Files up to this size are read and written synchronously on this thread: handing over to a thread of the pool costs
 * ten times as much.
 */
export const SMALL_BYTES: number = 64 * 1024;
const CHUNK_BYTES = 256 * 1024;
/** Read size for sparse files. Most of the data is zeros, which become holes, so that little memory is needed for it. */
const SPARSE_CHUNK_BYTES = 4 * 1024 * 1024;

/** Reads the first `sizeBytes` of a local file; fewer if it has become shorter, and not more if it has grown. */
export async function* fileContent(path: string | Buffer, sizeBytes: number): AsyncGenerator<Buffer> {
  if (sizeBytes > SMALL_BYTES) yield* createReadStream(path, { end: sizeBytes - 1, highWaterMark: CHUNK_BYTES });
  else if (sizeBytes > 0) yield firstBytes(path, sizeBytes);
}

/**
 * Like `fileContent`, with holes. A run of zeros counts as a hole, because Node cannot query holes (SEEK_HOLE of
 * lseek(2)).
 */
export async function* sparseContent(path: string | Buffer, sizeBytes: number): AsyncGenerator<Piece> {
  await using file = await open(path);
  const buffer = Buffer.allocUnsafe(Math.min(SPARSE_CHUNK_BYTES, sizeBytes));
  async function* chunks(): AsyncGenerator<Buffer> {
    for (let left = sizeBytes; left > 0;) {
      const { bytesRead } = await file.read(buffer, 0, Math.min(buffer.length, left));
      if (bytesRead === 0) return;
      left -= bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  }
  for await (const piece of withHoles(chunks())) yield isHole(piece) ? piece : Buffer.from(piece);
}

/** Buffer that several small files share: allocating one for each file would cost as much as reading it. */
let slab: Buffer = Buffer.alloc(0);

/** Reads the first bytes of a small file; fewer if it has become shorter. */
export function firstBytes(path: string | Buffer, sizeBytes: number): Buffer {
  if (slab.length < sizeBytes) slab = Buffer.allocUnsafe(CHUNK_BYTES);
  const bytes = slab.subarray(0, sizeBytes);
  slab = slab.subarray(sizeBytes);
  const fd = openSync(path, "r");
  try {
    let filled = 0;
    for (let count = -1; count !== 0 && filled < sizeBytes; filled += count)
      count = readSync(fd, bytes, filled, sizeBytes - filled, null);
    return bytes.subarray(0, filled);
  } finally {
    closeSync(fd);
  }
}
