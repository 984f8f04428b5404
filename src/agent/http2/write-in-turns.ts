import type { Batch } from "./output.ts";

/** Writes chunks, which have `sizeBytes` in all, and calls `written` when all of them are written. */
export type WriteChunks = (chunks: readonly Uint8Array[], sizeBytes: number, written: () => void) => void;

/**
 * Writes chunks in pieces of at most `turnBytes` bytes. Each piece is written when the piece before it has been
 * written. If `turnBytes` is undefined, all chunks are written at once.
 */
export function writeInTurns(
  { chunks, sizeBytes }: Pick<Batch, "chunks" | "sizeBytes">,
  turnBytes: number | undefined,
  write: WriteChunks,
  written: () => void,
): void {
  if (turnBytes === undefined || sizeBytes <= turnBytes) {
    write(chunks, sizeBytes, written);
    return;
  }
  let [at, from] = [0, 0];
  const next = (): void => {
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    for (let chunk = chunks[at]; chunk !== undefined && bytes < turnBytes; chunk = chunks[at]) {
      const piece = chunk.subarray(from, from + turnBytes - bytes);
      pieces.push(piece);
      bytes += piece.length;
      from += piece.length;
      if (from === chunk.length) [at, from] = [at + 1, 0];
    }
    write(pieces, bytes, at < chunks.length ? next : written);
  };
  next();
}
