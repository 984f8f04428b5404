import { reportBug } from "../domain/index.ts";
import type { Fields } from "./hpack.ts";
import type { Output } from "./output.ts";

/** Below this size a copy costs less than a separate chunk. */
const COPY_BELOW_BYTES = 1_024;
/** What a paused request sends is kept in blocks: memory of its own for each piece would cost more than its bytes. */
const BLOCK_BYTES: number = 16 * 1024;
/** Unused blocks that a connection keeps. */
const SPARE_BLOCKS = 16;
/** Shared by requests that hold nothing back, as most do. Never changed. */
const NONE: Buffer[] = [];

/** Receiver of a request. */
export interface StreamConsumer {
  /** The next bytes of the request's body, valid until it returns. */
  data(slice: Buffer): void;
  /** The request is complete. */
  end(): void;
  /** The stream has ended, with a code of RFC 9113, 7. Called once, also after a complete answer. */
  closed(code: number): void;
}

/** A stream's connection. */
export interface StreamOwner {
  readonly blocks: HeldBlocks;
  respond(stream: Http2Stream, fields: Fields): void;
  readyToSend(stream: Http2Stream): void;
  consumed(stream: Http2Stream, sizeBytes: number): void;
  reset(stream: Http2Stream, code: number): void;
}

/** Bytes to send, and a callback for when they are written or dropped. */
interface Queued {
  readonly bytes: Uint8Array;
  readonly release: (() => void) | undefined;
  /** Whether they are the first of the parts that were written together. */
  readonly isFirst: boolean;
}

/**
 * One request and its answer. Their ends are independent (RFC 9113, 5.1, without the states of pushed streams):
 *
 *     HEADERS ──► open ──────────── remoteEnded ──────► half-closed (remote)
 *                  │                                           │
 *                  │ end(): `ended`, and all is written        │ end(): `ended`, and all is written
 *                  ▼                                           ▼
 *            reset with NO_ERROR: the client          ──────► closed ◄── reset() by us, RST_STREAM by the
 *            need not finish its request                                 client, end of the connection: from any state
 *
 * Between end() and the last written byte the answer waits for the client's window: `ended`, and not yet `closed`. The
 * consumer learns of `closed` once, with the code. It is paused and resumed in any state before that.
 */
export class Http2Stream {
  readonly id: number;
  readonly #owner: StreamOwner;
  /** Set it before the request's handler returns. */
  consumer: StreamConsumer | undefined;
  headersSent = false;
  /** Nothing more is sent or received. */
  closed = false;

  // --- the request: the machine's to change

  /** The client has sent all of the request. */
  remoteEnded = false;
  /** What the client may still send. */
  receiveWindowBytes: number;
  /** Bytes read since the last WINDOW_UPDATE. */
  unannouncedBytes = 0;
  receivedBytes = 0;
  /** Announced length of the body; undefined: not announced. */
  expectedBytes: number | undefined;
  #paused = false;
  /** Blocks that are held back. All are full but the last. */
  #held: Buffer[] = NONE;
  #lastBytes = 0;
  #endHeld = false;

  // --- the answer

  /** What the client's window allows to send. */
  sendWindowBytes: number;
  /** Bytes of the answer that are not in the output yet. */
  queuedBytes = 0;
  /** Nothing more will be added to the answer. */
  ended = false;
  trailers: Fields | undefined;
  readonly #queue: Queued[] = [];
  #sentOfFirst = 0;

  constructor(owner: StreamOwner, id: number, receiveWindowBytes: number, sendWindowBytes: number) {
    this.#owner = owner;
    this.id = id;
    this.receiveWindowBytes = receiveWindowBytes;
    this.sendWindowBytes = sendWindowBytes;
  }

  /**
   * Sends the answer's header fields. With `endStream` they are the whole answer. That is sent in its turn, and until
   * then counts as one of the client's requests at once. So a client that reads no answers gets no more of them.
   */
  respond(fields: Fields, endStream = false): void {
    if (this.closed || this.headersSent) return;
    this.headersSent = true;
    if (endStream) this.end(fields);
    else this.#owner.respond(this, fields);
  }

  /** Adds to the answer without a copy: `release` runs once when the bytes were written or the stream has ended. */
  write(parts: readonly Uint8Array[], release?: () => void): void {
    if (this.closed || this.ended) {
      release?.();
      return;
    }
    const last = parts.length - 1;
    for (let at = 0; at <= last; at++) {
      const bytes = parts[at] as Uint8Array;
      this.queuedBytes += bytes.length;
      this.#queue.push({ bytes, release: at === last ? release : undefined, isFirst: at === 0 });
    }
    this.#owner.readyToSend(this);
  }

  /** Drops writes that were not begun. Returns the size of a begun one, whose rest the peer needs to read on. */
  dropUnsent(): number {
    const first = this.#queue.findIndex(({ isFirst }, at) => isFirst && (at > 0 || this.#sentOfFirst === 0));
    const dropped = first < 0 ? [] : this.#queue.splice(first);
    for (const { bytes } of dropped) this.queuedBytes -= bytes.length;
    for (const { release } of dropped) release?.();
    return this.#queue.reduce((sum, { bytes }) => sum + bytes.buffer.byteLength, 0);
  }

  /** Ends the answer after all that was written. Then resets a request that is not complete, with NO_ERROR. */
  end(trailers?: Fields): void {
    if (this.closed || this.ended) return;
    this.ended = true;
    this.trailers = trailers;
    this.#owner.readyToSend(this);
  }

  /** Ends the stream at once and drops what was not written. */
  reset(code: number): void {
    if (!this.closed) this.#owner.reset(this, code);
  }

  /** Holds back the request's bytes from now on. The client may still send what its window allows. */
  pause(): void {
    this.#paused = true;
  }

  /** Passes on the held bytes and all later ones. */
  resume(): void {
    this.#paused = false;
    while (this.#held.length > 0 && !this.#isPaused()) {
      const block = this.#held.shift() as Buffer;
      const sizeBytes = this.#held.length === 0 ? this.#lastBytes : BLOCK_BYTES;
      this.consumer?.data(block.subarray(0, sizeBytes));
      this.#owner.blocks.release(block);
      this.#owner.consumed(this, sizeBytes);
    }
    if (this.#endHeld && this.#held.length === 0 && !this.#isPaused()) {
      this.#endHeld = false;
      this.consumer?.end();
    }
  }

  /** Takes a piece of the request from the machine. */
  receive(slice: Buffer): void {
    if (this.#paused) {
      this.#hold(slice);
      return;
    }
    this.consumer?.data(slice);
    this.#owner.consumed(this, slice.length);
  }

  /** Takes the end of the request from the machine. */
  receiveEnd(): void {
    this.remoteEnded = true;
    if (this.#paused) this.#endHeld = true;
    else this.consumer?.end();
  }

  /** Moves `sizeBytes` of the answer into the output. */
  moveTo(output: Output, sizeBytes: number): void {
    let left = sizeBytes;
    while (left > 0) {
      const { bytes, release } = this.#queue[0] as Queued;
      const taken = Math.min(left, bytes.length - this.#sentOfFirst);
      const whole = taken === bytes.length;
      const slice = whole ? bytes : bytes.subarray(this.#sentOfFirst, this.#sentOfFirst + taken);
      if (taken < COPY_BELOW_BYTES) output.copy(slice);
      else output.reference(slice);
      left -= taken;
      this.#sentOfFirst += taken;
      if (this.#sentOfFirst < bytes.length) break;
      this.#queue.shift();
      this.#sentOfFirst = 0;
      if (release !== undefined) output.whenWritten(release);
    }
    this.queuedBytes -= sizeBytes;
  }

  /** Ends the stream for the machine. Returns how many bytes of the request stay unread. */
  close(code: number): number {
    if (this.closed) return 0;
    this.closed = true;
    const heldBytes = this.#held.length === 0 ? 0 : (this.#held.length - 1) * BLOCK_BYTES + this.#lastBytes;
    this.#held = NONE;
    this.queuedBytes = 0;
    try {
      if (this.#queue.length > 0) for (const { release } of this.#queue.splice(0)) release?.();
      this.consumer?.closed(code);
    } catch (error) {
      // The connection's other streams have to end too.
      reportBug(error);
    }
    return heldBytes;
  }

  /** A consumer may pause or end its stream at every piece. */
  #isPaused(): boolean {
    return this.#paused || this.closed;
  }

  #hold(slice: Buffer): void {
    if (this.#held === NONE) this.#held = [];
    for (let at = 0; at < slice.length;) {
      if (this.#held.length === 0 || this.#lastBytes === BLOCK_BYTES) {
        this.#held.push(this.#owner.blocks.take());
        this.#lastBytes = 0;
      }
      const copied = slice.copy(this.#held.at(-1) as Buffer, this.#lastBytes, at);
      this.#lastBytes += copied;
      at += copied;
    }
  }
}

/** Reused blocks for what paused requests send: a command's input takes 0.8 of the CPU time (decision 0025). */
export class HeldBlocks {
  readonly #spare: Buffer[] = [];

  /** A block with any content. */
  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(BLOCK_BYTES);
  }

  /** Takes back a block that nothing uses any more. */
  release(block: Buffer): void {
    if (this.#spare.length < SPARE_BLOCKS) this.#spare.push(block);
  }

  /** Keeps no unused block. */
  drop(): void {
    this.#spare.length = 0;
  }
}

/** How many ended streams are remembered, to judge frames that still arrive for them. */
const REMEMBERED_STREAMS = 256;

/** The last ended streams of a connection, and who ended them. */
export class EndedStreams {
  /** Twice the stream's number if we reset it; plus one if it ended otherwise. */
  readonly #last = new Float64Array(REMEMBERED_STREAMS);

  add(streamId: number, resetByUs: boolean): void {
    this.#last[placeOf(streamId)] = streamId * 2 + (resetByUs ? 0 : 1);
  }

  /** True for a stream that we reset: frames for it were still in flight (RFC 9113, 5.1). */
  wasReset(streamId: number): boolean {
    return this.#last[placeOf(streamId)] === streamId * 2;
  }

  hasEnded(streamId: number): boolean {
    return this.#last[placeOf(streamId)] === streamId * 2 + 1;
  }
}

function placeOf(streamId: number): number {
  return ((streamId - 1) / 2) % REMEMBERED_STREAMS;
}
