import { closeSync, createReadStream, openSync, readSync } from "node:fs";

/** Read in one step, on this thread: a hand-over to another costs ten times as much. */
const SMALL_BYTES = 64 * 1024;
const CHUNK_BYTES = 256 * 1024;

/** The first bytes of a local file; fewer where it has become shorter, and no more however it has grown. */
export async function* fileContent(path: string | Buffer, sizeBytes: number): AsyncGenerator<Buffer> {
  if (sizeBytes > SMALL_BYTES) yield* createReadStream(path, { end: sizeBytes - 1, highWaterMark: CHUNK_BYTES });
  else if (sizeBytes > 0) yield firstBytes(path, sizeBytes);
}

function firstBytes(path: string | Buffer, sizeBytes: number): Buffer {
  const bytes = Buffer.allocUnsafe(sizeBytes);
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
