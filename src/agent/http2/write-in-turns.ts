import type { Duplex } from "node:stream";

/** Writes bytes in pieces of at most `turnBytes`. Each piece is written when the previous piece has been written. */
export function writeInTurns(socket: Duplex, bytes: Uint8Array, turnBytes: number, written: () => void): void {
  const writeFrom = (at: number): void => {
    const end = at + turnBytes;
    socket.write(bytes.subarray(at, end), end < bytes.length ? () => writeFrom(end) : written);
  };
  writeFrom(0);
}
