import { becameShorter } from "./entry-error.ts";
import { TarError } from "./format.ts";
import { isHole, type Piece, withZeros } from "./holes.ts";
import type { TarEntry } from "./read.ts";

/**
 * Content of a file of a sandbox, exactly as many bytes as it declared: what follows in an archive begins after them.
 * Throws TarError for more, before any of the surplus is given, and EntryError at the end for fewer.
 *
 * @param name how messages name the file
 * @param onBytes called with the size of each piece
 */
export async function* whole<Part extends Piece>(
  content: AsyncIterable<Part>,
  sizeBytes: number,
  name: string,
  onBytes: (bytes: number) => void = () => undefined,
): AsyncGenerator<Part> {
  let leftBytes = sizeBytes;
  for await (const piece of content) {
    const bytes = isHole(piece) ? piece.holeBytes : piece.length;
    leftBytes -= bytes;
    if (leftBytes < 0)
      throw new TarError(`the sandbox's answer has more bytes than the ${sizeBytes} of ${JSON.stringify(name)}`);
    onBytes(bytes);
    yield piece;
  }
  if (leftBytes > 0) throw becameShorter(name);
}

/** A directory's entries, with itself before them, once the first has come or there is none; their content watched. */
export async function* withRoot<Entry extends TarEntry>(
  root: () => Entry,
  entries: AsyncIterable<Entry>,
  onBytes: (bytes: number) => void = () => undefined,
): AsyncGenerator<Entry> {
  let isBegun = false;
  for await (const entry of entries) {
    if (!isBegun) yield root();
    isBegun = true;
    const { name, size, content, pieces = content, readAll } = entry;
    if (readAll !== undefined) {
      onBytes(size);
      yield entry;
      continue;
    }
    const watched = whole<Piece>(pieces, size, name.toString(), onBytes);
    yield { ...entry, pieces: watched, content: withZeros(watched) };
  }
  if (!isBegun) yield root();
}
