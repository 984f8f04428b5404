import { isHole, type Piece, withZeros } from "./holes.ts";
import type { TarEntry } from "./read.ts";

/** Calls `onBytes` with the size of each piece of a file's content as it is read. */
export function counted<Entry extends Pick<TarEntry, "type" | "content" | "pieces" | "readAll">>(
  entry: Entry,
  onBytes: (bytes: number) => void,
): Entry {
  if (entry.type !== "file") return entry;
  const { readAll, pieces = entry.content } = entry;
  const each = countedPieces(pieces, onBytes);
  return {
    ...entry,
    readAll: readAll && (() => countedBytes(readAll(), onBytes)),
    pieces: each,
    content: withZeros(each),
  };
}

function countedBytes(bytes: Buffer, onBytes: (bytes: number) => void): Buffer {
  onBytes(bytes.length);
  return bytes;
}

async function* countedPieces(pieces: AsyncIterable<Piece>, onBytes: (bytes: number) => void): AsyncGenerator<Piece> {
  for await (const piece of pieces) {
    onBytes(isHole(piece) ? piece.holeBytes : piece.length);
    yield piece;
  }
}
