import type { Duplex } from "node:stream";
import { receiveAll } from "../internals/index.ts";

/**
 * Largest number of bytes that the agent parses per tick of the event loop, for all throttled connections together.
 * Parsing them takes at worst a few milliseconds.
 */
const TICK_BYTES = 8 * 1024;

/**
 * Lets throttled connections take turns. Node reads 64 KiB from a socket at once. Without turns, 60 connections that
 * send requests and immediately cancel them would block the agent for seconds.
 */
export class ThrottleQueue {
  /** The queue: a set keeps the order of insertion. */
  readonly #waiting = new Set<ThrottledInput>();
  #scheduled = false;

  /** Queues a connection: its next slice is processed in a later tick. */
  enqueue(input: ThrottledInput): void {
    this.#waiting.add(input);
    this.#schedule();
  }

  /** Removes a connection that has no more input to process, or is closed. */
  remove(input: ThrottledInput): void {
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
    // readSlice() moves a connection that has more input to the end of the set. So this loop reaches it again after
    // all other connections.
    try {
      for (const input of this.#waiting) {
        this.#waiting.delete(input);
        left -= input.readSlice();
        if (left <= 0) break;
      }
    } finally {
      // The rest of the queue must be processed even if an input throws.
      if (this.#waiting.size > 0) this.#schedule();
    }
  }
}

/** Number of bytes of one connection that are parsed before the next connection has its turn: a few dozen frames. */
const SLICE_BYTES = 2 * 1024;

/** How much a throttled connection may send, and in which queue its input waits. */
export interface ThrottledInputOptions {
  readonly queue: ThrottleQueue;
  /** Largest number of bytes that the peer may send while it is throttled; no limit if undefined. */
  readonly bytes?: number;
  /**
   * Limit for the number of reads from the socket while the peer is throttled. Each TLS record counts as a read,
   * however short it is.
   */
  readonly reads?: number;
}

export interface ThrottledInputEvents {
  read(bytes: Buffer): void;
  /** Called when the peer has closed its sending side and all input was processed. */
  ended(): void;
  /** Called when the peer exceeded a limit. */
  exceeded?(problem: string): void;
}

/**
 * Processes the input of a throttled peer in small slices, in turns with other peers. While input is queued here, the
 * socket is paused, so that further input stays in the kernel.
 */
export class ThrottledInput {
  readonly #socket: Duplex;
  readonly #limits: ThrottledInputOptions;
  readonly #events: ThrottledInputEvents;
  readonly #held: Buffer[] = [];
  #bytes = 0;
  #reads = 0;
  #inputEnded = false;
  #reading = false;
  #state: "running" | "trusted" | "stopped" = "running";

  constructor(socket: Duplex, limits: ThrottledInputOptions, events: ThrottledInputEvents) {
    this.#socket = socket;
    this.#limits = limits;
    this.#events = events;
  }

  /** Starts reading the socket. Do not call it if the owner reads the socket and passes the bytes to `add`. */
  start(): void {
    receiveAll(this.#socket, (bytes) => this.add(bytes));
    this.#socket.once("end", () => this.endInput());
    this.#socket.once("close", () => this.stop());
  }

  /** Queues a copy of what the socket has read. */
  add(bytes: Buffer): void {
    if (this.#state === "stopped") return;
    const { bytes: limitBytes = Infinity, reads = Infinity } = this.#limits;
    this.#bytes += bytes.length;
    this.#reads++;
    if (this.#bytes > limitBytes || this.#reads > reads) {
      this.#events.exceeded?.(`no request was authenticated in ${this.#bytes} bytes and ${this.#reads} reads`);
      return;
    }
    this.#held.push(Buffer.from(bytes));
    // The original bytes may contain a token, so they are overwritten. Only the copy is left.
    bytes.fill(0);
    this.#socket.pause();
    this.#limits.queue.enqueue(this);
  }

  endInput(): void {
    this.#inputEnded = true;
    if (this.#held.length === 0 && this.#state !== "stopped") this.#events.ended();
  }

  /** Processes the next slice. Returns its length in bytes. */
  readSlice(): number {
    const first = this.#held[0];
    if (first === undefined) return 0;
    const piece = first.subarray(0, SLICE_BYTES);
    if (piece.length === first.length) this.#held.shift();
    else this.#held[0] = first.subarray(SLICE_BYTES);
    this.#read(piece);
    if (this.#state === "running" && this.#held.length > 0) this.#limits.queue.enqueue(this);
    else this.#resume();
    return piece.length;
  }

  /**
   * Call it when the peer was authenticated. Processes the queued input without throttling. The caller handles later
   * input.
   */
  trust(): void {
    if (this.#state !== "running") return;
    this.#state = "trusted";
    this.#limits.queue.remove(this);
    // If readSlice() is parsing a slice now, it calls #resume itself after that slice.
    if (!this.#reading) this.#resume();
  }

  /** Discards the queued input and stops reading the socket. */
  stop(): void {
    if (this.#state === "trusted") return;
    this.#state = "stopped";
    this.#limits.queue.remove(this);
    for (const bytes of this.#held.splice(0)) bytes.fill(0);
    this.#socket.pause();
  }

  /** Once throttling has ended, processes all queued input and then resumes the socket. */
  #resume(): void {
    while (this.#state === "trusted" && this.#held.length > 0) this.#read(this.#held.shift() as Buffer);
    if (this.#state === "stopped" || this.#held.length > 0) return;
    if (this.#inputEnded) this.#events.ended();
    else this.#socket.resume();
  }

  #read(piece: Buffer): void {
    this.#reading = true;
    this.#events.read(piece);
    this.#reading = false;
    // Slices are overwritten, because they may contain a token.
    piece.fill(0);
  }
}
