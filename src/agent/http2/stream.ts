import { reportInternalError } from "../domain/index.ts";
import type { Fields } from "./hpack.ts";
import type { Output } from "./output.ts";

/** Parts of a response below this size are copied into the output, which is cheaper than a separate chunk. */
const COPY_BELOW_BYTES = 1_024;
/**
 * Size of the blocks for the input of paused requests. A separate allocation for each slice would cost more memory than
 * the slice.
 */
const BLOCK_BYTES: number = 16 * 1024;
/** Number of free blocks that a connection keeps. */
const SPARE_BLOCKS = 16;
/** Value of `#held` while no input is held back. All requests share this array, so it must never be modified. */
const NONE: Buffer[] = [];

/** Receives the body of one request, and is called when the request and its stream end. */
export interface StreamConsumer {
  /** Called with a slice of the request's body, which is valid until this returns. */
  data(slice: Buffer): void;
  /** Called when the client has sent the complete request. */
  end(): void;
  /**
   * Called exactly once, when the stream has ended, also after a complete response. `code` is an error code of RFC
   * 9113, 7.
   */
  closed(code: number): void;
}

/** What a stream needs from its connection: sending frames and changing flow-control windows. */
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
  /** Whether this is the first part of a call of `write`. */
  readonly isFirst: boolean;
}

/**
 * A request and its response. Either may end before the other (RFC 9113, 5.1, without the states of pushed streams):
 *
 *     open ────── the client has sent the complete request: `remoteEnded` ─────► half-closed (remote)
 *      │                                                                          │
 *      │ end(), and all is written                                                │ end(), and all is written
 *      ▼                                                                          ▼
 *     reset with NO_ERROR: the client need not finish its request ─────────────► closed
 *
 * From any state, a stream also becomes `closed` by reset(), by RST_STREAM of the client, and by the end of the
 * connection.
 *
 * end() only marks the response as `ended`, because the last bytes may have to wait for the client's window. When all
 * bytes are written, the stream becomes `closed`.
 *
 * Whenever a stream becomes `closed`, it calls the consumer's `closed` once, with the error code. Before that, the
 * stream can be paused and resumed.
 */
export class Http2Stream {
  readonly id: number;
  readonly #owner: StreamOwner;
  /** Receives the request. The connection's callback for new requests must set it before it returns. */
  consumer: StreamConsumer | undefined;
  headersSent = false;
  /** Whether nothing more is sent or received. */
  closed = false;

  // --- request (modified by Http2Machine)

  /** Whether the client has sent the complete request. */
  remoteEnded = false;
  /** Number of bytes that the client may still send in the current flow-control window. */
  receiveWindowBytes: number;
  /** Number of bytes read since the last WINDOW_UPDATE. */
  unannouncedBytes = 0;
  receivedBytes = 0;
  /** Value of content-length; undefined if the header is missing. */
  expectedBytes: number | undefined;
  #paused = false;
  /** Blocks of input that arrived while the request was paused. All but the last are full. */
  #held: Buffer[] = NONE;
  #lastBytes = 0;
  #endHeld = false;

  // --- response

  /** Number of bytes that the client's window still allows the agent to send. */
  sendWindowBytes: number;
  /** Number of bytes of the response that are not in the output yet. */
  queuedBytes = 0;
  /** Whether the response is complete. */
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
   * Sends the header fields of the response. With `endStream`, the response consists of only these fields. Its request
   * then counts as open until the fields are sent. So a client that does not read responses reaches the limit of open
   * requests.
   */
  respond(fields: Fields, endStream = false): void {
    if (this.closed || this.headersSent) return;
    this.headersSent = true;
    if (endStream) this.end(fields);
    else this.#owner.respond(this, fields);
  }

  /** Appends to the response without copying. `release` runs when the bytes are written or the stream has ended. */
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

  /**
   * Drops the queued writes, except a write that is already partly in the output: without its remaining bytes, the peer
   * could not parse the response. Returns the size of the memory that these remaining bytes occupy.
   */
  dropUnsent(): number {
    const first = this.#queue.findIndex(({ isFirst }, at) => isFirst && (at > 0 || this.#sentOfFirst === 0));
    const dropped = first < 0 ? [] : this.#queue.splice(first);
    for (const { bytes } of dropped) this.queuedBytes -= bytes.length;
    for (const { release } of dropped) release?.();
    return this.#queue.reduce((sum, { bytes }) => sum + bytes.buffer.byteLength, 0);
  }

  /** Ends the response after everything that was written. An incomplete request is then reset with NO_ERROR. */
  end(trailers?: Fields): void {
    if (this.closed || this.ended) return;
    this.ended = true;
    this.trailers = trailers;
    this.#owner.readyToSend(this);
  }

  /** Ends the stream immediately and drops what was not written. */
  reset(code: number): void {
    if (!this.closed) this.#owner.reset(this, code);
  }

  /** Holds back the request's input until `resume`. The client may still send as much as its window allows. */
  pause(): void {
    this.#paused = true;
  }

  /** Ends the pause: delivers the input that was held back, and then further input. */
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

  /** Called by Http2Machine with a slice of the request. */
  receive(slice: Buffer): void {
    if (this.#paused) {
      this.#hold(slice);
      return;
    }
    this.consumer?.data(slice);
    this.#owner.consumed(this, slice.length);
  }

  /** Called by Http2Machine at the end of the request. */
  receiveEnd(): void {
    this.remoteEnded = true;
    if (this.#paused) this.#endHeld = true;
    else this.consumer?.end();
  }

  /** Moves `sizeBytes` of the response into the output. */
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

  /** Called by Http2Machine when the stream ends. Returns the number of unread bytes. */
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
      // An error in a callback is only reported, so that the other streams of the connection are still closed.
      reportInternalError(error);
    }
    return heldBytes;
  }

  /**
   * This is a method, so that each use reads the fields again: any callback of the consumer may pause or end the
   * stream.
   */
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

/**
 * The blocks of memory that hold the input of paused requests. They are reused: new blocks would take a quarter more
 * CPU time for a command's input (decision 0025).
 */
export class HeldBlocks {
  readonly #spare: Buffer[] = [];

  /** Returns an unused block of BLOCK_BYTES, with arbitrary content. */
  take(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(BLOCK_BYTES);
  }

  release(block: Buffer): void {
    if (this.#spare.length < SPARE_BLOCKS) this.#spare.push(block);
  }

  drop(): void {
    this.#spare.length = 0;
  }
}

/**
 * Number of ended streams that a connection remembers, in order to decide whether a late frame for one of them is an
 * error.
 */
const REMEMBERED_STREAMS = 256;

/** Remembers the last ended streams of a connection, and whether the agent reset each of them. */
export class EndedStreams {
  /** Each element describes one ended stream: 2 * id if the agent has reset the stream, otherwise 2 * id + 1. */
  readonly #last = new Float64Array(REMEMBERED_STREAMS);

  add(streamId: number, resetByUs: boolean): void {
    this.#last[slotOf(streamId)] = streamId * 2 + (resetByUs ? 0 : 1);
  }

  /** Whether the agent reset the stream. If so, frames for this stream may still be in flight (RFC 9113, 5.1). */
  wasReset(streamId: number): boolean {
    return this.#last[slotOf(streamId)] === streamId * 2;
  }

  hasEnded(streamId: number): boolean {
    return this.#last[slotOf(streamId)] === streamId * 2 + 1;
  }
}

function slotOf(streamId: number): number {
  return ((streamId - 1) / 2) % REMEMBERED_STREAMS;
}
