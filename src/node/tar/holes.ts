/** A hole of a sparse file: a run of zeros that uses no disk space. */
export interface Hole {
  readonly holeBytes: number;
}

/** A part of a file's content: bytes or a hole. */
export type Piece = Buffer | Hole;

/** Shorter runs of zeros are sent as bytes, because the message for a hole would take about as much time. */
const LEAST_BYTES = 64 * 1024;
/** Limit on one hole. Longer holes are split, so that the receiver sees progress within a long one. */
const MOST_BYTES = 64 * 1024 * 1024;
const ZEROS = Buffer.alloc(256 * 1024);

export function isHole(piece: Piece): piece is Hole {
  return "holeBytes" in piece;
}

/** Replaces long runs of zeros by holes. */
export async function* withHoles(pieces: AsyncIterable<Piece>): AsyncGenerator<Piece> {
  let holeBytes = 0;
  for await (const piece of pieces) {
    if (isHole(piece)) {
      if (holeBytes > 0) yield { holeBytes };
      holeBytes = 0;
      yield piece;
      continue;
    }
    let sent = 0;
    for (let at = 0; at < piece.length; at += LEAST_BYTES) {
      const part = piece.subarray(at, at + LEAST_BYTES);
      const isZeros = part.equals(ZEROS.subarray(0, part.length)) && (part.length === LEAST_BYTES || holeBytes > 0);
      if (holeBytes > 0 && (!isZeros || holeBytes >= MOST_BYTES)) {
        yield { holeBytes };
        holeBytes = 0;
      }
      if (!isZeros) continue;
      if (at > sent) yield piece.subarray(sent, at);
      holeBytes += part.length;
      sent = at + part.length;
    }
    if (sent < piece.length) yield piece.subarray(sent);
  }
  if (holeBytes > 0) yield { holeBytes };
}

/** Replaces holes by zeros, in pieces of bounded size. */
export async function* withZeros(pieces: AsyncIterable<Piece>): AsyncGenerator<Buffer> {
  for await (const piece of pieces) {
    if (!isHole(piece)) yield piece;
    else
      for (let left = piece.holeBytes; left > 0; left -= ZEROS.length)
        yield ZEROS.subarray(0, Math.min(left, ZEROS.length));
  }
}
