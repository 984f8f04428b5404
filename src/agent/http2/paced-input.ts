import type { Duplex } from "node:stream";
import { receiveAll } from "../internals/index.ts";

/** Bytes that all waiting connections together pass on in one tick of the event loop: a few milliseconds at worst. */
const TICK_BYTES = 8 * 1024;

/**
 * Lets connections take turns. Node reads 64 KiB of each socket and handles all of it before anything else runs. So 60
 * connections full of calls that are cancelled at once would stop the agent for seconds.
 */
export class Pace {
  /** In the order of their turns. */
  readonly #waiting = new Set<PacedInput>();
  #scheduled = false;

  /** Queues a connection: its next piece is read in a later tick. */
  enqueue(input: PacedInput): void {
    this.#waiting.add(input);
    this.#schedule();
  }

  /** Takes a connection out of the queue. */
  leave(input: PacedInput): void {
    this.#waiting.delete(input);
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#tick());
  }

  #tick(): void {
    this.#scheduled = false;
    let left = TICK_BYTES;
    // A connection with more to read is at the end of the set again, where this loop meets it.
    try {
      for (const input of this.#waiting) {
        this.#waiting.delete(input);
        left -= input.handOn();
        if (left <= 0) break;
      }
    } finally {
      // Also after a bug of one of them.
      if (this.#waiting.size > 0) this.#schedule();
    }
  }
}

/** Bytes that a connection passes on in its turn: a few dozen frames. */
const PIECE_BYTES = 2 * 1024;

/** How a connection is read in turns with others. */
export interface PacedInputLimits {
  /** Gives it its turns. */
  readonly pace: Pace;
  /** Bytes that the peer may send; undefined: as many as it likes. */
  readonly bytes?: number;
  /** Reads in which they arrive: each TLS record is one, however short. */
  readonly reads?: number;
}

/** Callbacks to the connection. */
export interface PacedInputEvents {
  read(bytes: Buffer): void;
  /** The peer sends no more, and all that it sent was read. */
  ended(): void;
  /** The peer has sent more than it may. */
  exceeded?(problem: string): void;
}

/**
 * Reads what an untrusted peer sends: a little at a time, in turns with other such peers, up to a bound. The socket is
 * paused meanwhile, so that the rest waits in the kernel.
 */
export class PacedInput {
  readonly #socket: Duplex;
  readonly #limits: PacedInputLimits;
  readonly #events: PacedInputEvents;
  readonly #held: Buffer[] = [];
  #bytes = 0;
  #reads = 0;
  #inputEnded = false;
  #reading = false;
  #state: "running" | "passed" | "over" = "running";

  constructor(socket: Duplex, limits: PacedInputLimits, events: PacedInputEvents) {
    this.#socket = socket;
    this.#limits = limits;
    this.#events = events;
  }

  /** Reads the socket from now on, until it is closed. For an owner that does not read it itself. */
  start(): void {
    receiveAll(this.#socket, (bytes) => this.add(bytes));
    this.#socket.once("end", () => this.endInput());
    this.#socket.once("close", () => this.stop());
  }

  /** Takes what the socket has read; copies it. */
  add(bytes: Buffer): void {
    if (this.#state === "over") return;
    const { bytes: limitBytes = Infinity, reads = Infinity } = this.#limits;
    this.#bytes += bytes.length;
    this.#reads++;
    if (this.#bytes > limitBytes || this.#reads > reads) {
      this.#events.exceeded?.(`no request was let in within ${limitBytes} bytes and ${reads} reads`);
      return;
    }
    this.#held.push(Buffer.from(bytes));
    // Overwrite the original, so that a token is in one place only.
    bytes.fill(0);
    this.#socket.pause();
    this.#limits.pace.enqueue(this);
  }

  endInput(): void {
    this.#inputEnded = true;
    if (this.#held.length === 0 && this.#state !== "over") this.#events.ended();
  }

  /** Reads the next piece. Returns its length in bytes. */
  handOn(): number {
    const first = this.#held[0];
    if (first === undefined) return 0;
    const piece = first.subarray(0, PIECE_BYTES);
    if (piece.length === first.length) this.#held.shift();
    else this.#held[0] = first.subarray(PIECE_BYTES);
    this.#read(piece);
    if (this.#state === "running" && this.#held.length > 0) this.#limits.pace.enqueue(this);
    else this.#readOn();
    return piece.length;
  }

  /** The peer has shown that it may be trusted: passes on the held bytes. The caller passes on later ones. */
  pass(): void {
    if (this.#state !== "running") return;
    this.#state = "passed";
    this.#limits.pace.leave(this);
    // During a read, finish the piece that is being read first.
    if (!this.#reading) this.#readOn();
  }

  /** Reads nothing more, and lets the socket read nothing more either. */
  stop(): void {
    if (this.#state === "passed") return;
    this.#state = "over";
    this.#limits.pace.leave(this);
    for (const bytes of this.#held.splice(0)) bytes.fill(0);
    this.#socket.pause();
  }

  /** Passes on all that is held once the peer has passed, and then lets the socket read on. */
  #readOn(): void {
    while (this.#state === "passed" && this.#held.length > 0) this.#read(this.#held.shift() as Buffer);
    if (this.#state === "over" || this.#held.length > 0) return;
    if (this.#inputEnded) this.#events.ended();
    else this.#socket.resume();
  }

  #read(piece: Buffer): void {
    this.#reading = true;
    this.#events.read(piece);
    this.#reading = false;
    // Overwrite small pieces: they may hold a token.
    piece.fill(0);
  }
}
