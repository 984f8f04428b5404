import type { Socket } from "node:net";
import { Duplex } from "node:stream";

/** What a connection passes on at a time: a few dozen calls, enough to be closed for cancelling them. */
const PIECE_BYTES = 2 * 1024;
/** What all connections together pass on in one turn of the event loop: a few milliseconds of work at worst. */
const TURN_BYTES = 8 * 1024;

/**
 * Lets the connections of a listener take turns. Node reads 64 KiB of each socket and handles every call in it before
 * anything else runs: 60 connections full of calls that are cancelled at once would stop the whole agent for seconds.
 */
export class Pace {
  /** In the order of their turns. */
  readonly #waiting = new Set<PacedSocket>();
  #scheduled = false;

  /** Queues the socket: its next piece is read in a later turn. */
  enqueue(socket: PacedSocket): void {
    this.#waiting.add(socket);
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#turn());
  }

  /** Reads no more of the socket. */
  leave(socket: PacedSocket): void {
    this.#waiting.delete(socket);
  }

  #turn(): void {
    this.#scheduled = false;
    let left = TURN_BYTES;
    for (const socket of this.#waiting) {
      this.#waiting.delete(socket);
      left -= socket.handOn();
      if (left <= 0) break;
    }
    const next = this.#waiting.values().next().value;
    if (next !== undefined) this.enqueue(next);
  }
}

/** An accepted socket that is read in pieces, when its turn comes. Everything else passes straight through. */
export class PacedSocket extends Duplex {
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
    // A read of 0 bytes makes an empty socket fetch more, and an ended one emit "end".
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
