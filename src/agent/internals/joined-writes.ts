import type { Duplex } from "node:stream";

/** Largest write whose pieces are joined into one buffer. */
const BUFFER_BYTES = 384 * 1024;

/** The buffer of the last joined write. The reference is weak, so that an idle agent does not keep the buffer. */
let spare: WeakRef<Buffer> | undefined;
/**
 * Whether a write is using the buffer. All writes share this buffer: with a buffer for each write, 64 concurrent
 * downloads lost a fifth of their throughput.
 */
let isLent = false;

function takeBuffer(): Buffer {
  const buffer = spare?.deref() ?? Buffer.allocUnsafeSlow(BUFFER_BYTES);
  spare = undefined;
  isLent = true;
  return buffer;
}

/**
 * Joins pieces into one write to a TLS socket. They are joined in a buffer that is reused, which reduces the CPU time
 * of a download by 10 to 50 % (decision 0025). Pieces are not joined if together they are larger than the buffer, or if
 * an earlier write still uses the buffer. Calls `written` once, when all pieces are written or dropped.
 */
export function writeJoined(
  socket: Duplex,
  pieces: readonly Uint8Array[],
  sizeBytes: number,
  written: () => void,
): void {
  if (isLent || pieces.length === 1 || sizeBytes > BUFFER_BYTES) {
    writeEach(socket, pieces, written);
    return;
  }
  const buffer = takeBuffer();
  let at = 0;
  for (const piece of pieces) {
    buffer.set(piece, at);
    at += piece.length;
  }
  socket.write(buffer.subarray(0, at), () => {
    isLent = false;
    spare = new WeakRef(buffer);
    written();
  });
}

/** Writes pieces without joining them. A socket without TLS then sends them all in one system call, without a copy. */
export function writeEach(socket: Duplex, pieces: readonly Uint8Array[], written: () => void): void {
  const last = pieces.length - 1;
  if (last > 0) socket.cork();
  for (let at = 0; at <= last; at++) socket.write(pieces[at], at === last ? written : undefined);
  if (last > 0) socket.uncork();
}
