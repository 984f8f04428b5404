import { becameShorter } from "./entry-error.ts";
import { TarError } from "./format.ts";
import { isHole, type Piece, withZeros } from "./holes.ts";
import type { TarEntry } from "./read.ts";

/**
 * Passes through the content of a sandbox's file, and checks that it has exactly the declared size: in an archive, the
 * next entry begins after that many bytes. Throws TarError for surplus bytes, before yielding any of them, and
 * EntryError at the end if bytes are missing.
 *
 * @param name name of the file in error messages
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
      throw new TarError(
        `the sandbox's answer has more than the declared ${sizeBytes} bytes of ${JSON.stringify(name)}`,
      );
    onBytes(bytes);
    yield piece;
  }
  if (leftBytes > 0) throw becameShorter(name);
}

/**
 * Yields the root directory and then its entries; `whole` checks the content of the entries. The root is yielded as
 * soon as the first entry has arrived, or, if there are no entries, at the end of the archive.
 */
export async function* withRoot<Entry extends TarEntry>(
  root: () => Entry,
  entries: AsyncIterable<Entry>,
  onBytes: (bytes: number) => void = () => undefined,
): AsyncGenerator<Entry> {
  let isBegun = false;
  for await (const entry of entries) {
    if (!isBegun) yield root();
    isBegun = true;
    if (entry.readAll !== undefined) {
      onBytes(entry.size);
      yield entry;
      continue;
    }
    const { name, size, content, pieces = content } = entry;
    const watched = whole<Piece>(pieces, size, name.toString(), onBytes);
    yield { ...entry, pieces: watched, content: withZeros(watched) };
  }
  if (!isBegun) yield root();
}
