import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import type { Pace, Paced } from "../http2/index.ts";

/** What a connection passes on at a time: a few dozen calls, enough to be closed for cancelling them. */
const PIECE_BYTES = 2 * 1024;
/** An accepted socket that is read in pieces, when its turn comes. Everything else passes straight through. */
export class PacedSocket extends Duplex implements Paced {
  readonly #socket: Socket;
  readonly #pace: Pace;
  #wanted = false;

  constructor(socket: Socket, pace: Pace) {
    super({ readableHighWaterMark: PIECE_BYTES });
    this.#socket = socket;
    this.#pace = pace;
    // HTTP decides whether to answer a client that has sent its last byte.
    socket.allowHalfOpen = true;
    socket.on("readable", () => {
      if (this.#wanted) pace.enqueue(this);
    });
    socket.once("end", () => this.push(null));
    socket.once("error", (error) => this.destroy(error));
    socket.once("close", () => this.destroy());
  }

  /** Passes on a piece if there is one. Returns its length in bytes. */
  handOn(): number {
    // read(0) makes an empty socket fetch more, and an ended socket emit "end".
    const piece = this.#socket.read(Math.min(PIECE_BYTES, this.#socket.readableLength)) as Buffer | null;
    if (piece === null) return 0;
    this.#wanted = false;
    this.push(piece);
    return piece.length;
  }

  /** Ends the connection once everything is written. HTTP/1 calls it after the last response, as on a net.Socket. */
  destroySoon(): void {
    this.end(() => this.destroy());
  }

  override _read(): void {
    this.#wanted = true;
    this.#pace.enqueue(this);
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#socket.write(chunk, callback);
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#socket.end(callback);
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#pace.leave(this);
    this.#socket.destroy();
    callback(error);
  }
}
