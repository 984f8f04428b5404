import {
  Flag,
  FRAME_HEADER_BYTES,
  frameSizeError,
  FrameType,
  MAX_FRAME_BYTES,
  PREFACE,
  protocolError,
} from "./protocol.ts";

const NO_BYTES = Buffer.alloc(0);

/** Receiver of frames. Its methods may throw ConnectionError, which makes the reader unusable. */
export interface FrameHandler {
  /** Called when a DATA frame begins. Its whole length counts for flow control (RFC 9113, 6.1). Its payload follows. */
  dataBegins(streamId: number, lengthBytes: number): void;
  /** Called with a slice of the payload, without padding. It is a view that must not be kept. */
  data(slice: Buffer): void;
  /** Called when the DATA frame is complete. `discardedBytes` counts its padding and its Pad Length field. */
  dataEnds(flags: number, discardedBytes: number): void;
  /** Called with a complete frame of any other type. The payload is a view that must not be kept. */
  frame(type: number, flags: number, streamId: number, payload: Buffer): void;
}

/** Splits the input of a connection into frames. The payload of DATA is passed on in slices as it arrives. */
export class FrameReader {
  readonly #handler: FrameHandler;
  /** Number of preface bytes read so far. */
  #prefaceBytes: number;
  readonly #head: Buffer = Buffer.alloc(FRAME_HEADER_BYTES);
  #headFilled = 0;
  /** Type of the current frame; -1 between frames. */
  #type = -1;
  #flags = 0;
  #streamId = 0;
  /** Number of bytes of the current frame that are still missing. */
  #left = 0;
  /** Length of the padding of a DATA frame; -1 until it is known. */
  #padding = 0;
  #discarded = 0;
  /** Payload of a frame that arrives in several pieces. */
  #payload: Buffer | undefined;

  /** @param expectsPreface set it to false if the peer is a server */
  constructor(handler: FrameHandler, { expectsPreface = true }: { readonly expectsPreface?: boolean } = {}) {
    this.#handler = handler;
    this.#prefaceBytes = expectsPreface ? 0 : PREFACE.length;
  }

  /** Parses the next bytes and keeps no reference to them. Throws ConnectionError for an invalid frame. */
  push(chunk: Buffer): void {
    let at = this.#prefaceBytes < PREFACE.length ? this.#preface(chunk) : 0;
    while (at < chunk.length || (this.#type >= 0 && this.#left === 0)) {
      if (this.#type < 0) at = this.#header(chunk, at);
      else if (this.#type === FrameType.DATA) at = this.#data(chunk, at);
      else at = this.#other(chunk, at);
    }
  }

  #preface(chunk: Buffer): number {
    const taken = Math.min(PREFACE.length - this.#prefaceBytes, chunk.length);
    const fits = chunk.compare(PREFACE, this.#prefaceBytes, this.#prefaceBytes + taken, 0, taken) === 0;
    if (!fits) throw protocolError("invalid connection preface: not HTTP/2");
    this.#prefaceBytes += taken;
    return taken;
  }

  #header(chunk: Buffer, at: number): number {
    let head = chunk;
    let from = at;
    let next = at + FRAME_HEADER_BYTES;
    if (this.#headFilled > 0 || next > chunk.length) {
      const taken = Math.min(FRAME_HEADER_BYTES - this.#headFilled, chunk.length - at);
      chunk.copy(this.#head, this.#headFilled, at, at + taken);
      this.#headFilled += taken;
      next = at + taken;
      if (this.#headFilled < FRAME_HEADER_BYTES) return next;
      this.#headFilled = 0;
      head = this.#head;
      from = 0;
    }
    this.#left = head.readUIntBE(from, 3);
    this.#type = head[from + 3] as number;
    this.#flags = head[from + 4] as number;
    this.#streamId = head.readUInt32BE(from + 5) & 0x7fffffff;
    if (this.#left > MAX_FRAME_BYTES) throw frameSizeError(`a frame of more than ${MAX_FRAME_BYTES} bytes`);
    if (this.#type === FrameType.DATA) {
      this.#padding = (this.#flags & Flag.PADDED) === 0 ? 0 : -1;
      this.#discarded = 0;
      this.#handler.dataBegins(this.#streamId, this.#left);
    }
    return next;
  }

  #data(chunk: Buffer, from: number): number {
    let at = from;
    if (this.#padding < 0) {
      if (this.#left === 0) throw frameSizeError("DATA frame with the PADDED flag, but without a pad length");
      this.#padding = chunk[at++] as number;
      this.#left--;
      this.#discarded = 1 + this.#padding;
      if (this.#padding > this.#left) throw protocolError("padding that is longer than its frame");
    }
    const taken = Math.min(this.#left - this.#padding, chunk.length - at);
    if (taken > 0) {
      this.#left -= taken;
      this.#handler.data(chunk.subarray(at, at + taken));
      at += taken;
    }
    if (this.#left === this.#padding) {
      const padding = Math.min(this.#padding, chunk.length - at);
      this.#padding -= padding;
      this.#left -= padding;
      at += padding;
    }
    if (this.#left > 0) return at;
    this.#type = -1;
    this.#handler.dataEnds(this.#flags, this.#discarded);
    return at;
  }

  #other(chunk: Buffer, at: number): number {
    let payload: Buffer;
    let next = at + this.#left;
    if (this.#payload === undefined && next <= chunk.length) {
      payload = this.#left === 0 ? NO_BYTES : chunk.subarray(at, next);
    } else {
      this.#payload ??= Buffer.allocUnsafe(this.#left);
      next = Math.min(next, chunk.length);
      chunk.copy(this.#payload, this.#payload.length - this.#left, at, next);
      // A header block may contain a secret. So the received bytes are overwritten here, and the handler of the frame
      // later overwrites their copy in `#payload`.
      chunk.fill(0, at, next);
      this.#left -= next - at;
      if (this.#left > 0) return next;
      payload = this.#payload;
      this.#payload = undefined;
    }
    const type = this.#type;
    this.#type = -1;
    this.#handler.frame(type, this.#flags, this.#streamId, payload);
    return next;
  }
}
