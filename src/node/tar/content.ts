import { closeSync, createReadStream, openSync, readSync } from "node:fs";
import { open } from "node:fs/promises";
import { isHole, type Piece, withHoles } from "./holes.ts";

/** Read and written in one step, on this thread: a hand-over to another costs ten times as much. */
export const SMALL_BYTES: number = 64 * 1024;
const CHUNK_BYTES = 256 * 1024;
/** Of a sparse file at once: most of it is zeros, which take no more memory than this. */
const SPARSE_CHUNK_BYTES = 4 * 1024 * 1024;

/** The first bytes of a local file; fewer where it has become shorter, and no more however it has grown. */
export async function* fileContent(path: string | Buffer, sizeBytes: number): AsyncGenerator<Buffer> {
  if (sizeBytes > SMALL_BYTES) yield* createReadStream(path, { end: sizeBytes - 1, highWaterMark: CHUNK_BYTES });
  else if (sizeBytes > 0) yield firstBytes(path, sizeBytes);
}

/** The same with its holes: what Node reads as zeros, as it cannot ask for them (SEEK_HOLE of lseek(2)). */
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

/** What is left of it is for the next files: memory of its own for each would cost as much as its reading. */
let slab: Buffer = Buffer.alloc(0);

/** A small file's first bytes; fewer where it has become shorter. */
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
