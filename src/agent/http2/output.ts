import { FRAME_HEADER_BYTES, FrameType } from "./protocol.ts";

/** Size of the scratch buffer: room for a few small responses, or for the frame headers of many large ones. */
const SCRATCH_BYTES = 4 * 1024;
/**
 * The chunk list of all outputs that are empty. It must never be modified: when an output gets its first chunk, a new
 * list with this one element replaces the empty list. Appending to an empty list would be worse, because V8 would
 * reserve room for 17 elements.
 */
const NO_CHUNKS: Uint8Array[] = [];
const NO_CALLBACKS: (() => void)[] = [];

export interface Batch {
  readonly chunks: readonly Uint8Array[];
  readonly sizeBytes: number;
  /** Call it when the bytes are written or dropped: their memory is then reused. */
  readonly release: () => void;
}

/** Collects frames to write. Small frames share a buffer, so that a small response is one chunk. */
export class Output {
  #scratch: Buffer | undefined;
  #spare: Buffer | undefined;
  /** Range of the scratch buffer that is not part of a chunk yet. */
  #start = 0;
  #end = 0;
  #chunks = NO_CHUNKS;
  #callbacks = NO_CALLBACKS;
  sizeBytes = 0;

  /**
   * Writes a frame header, and reserves `payloadBytes` bytes after it. The caller must write the payload into the
   * returned buffer, before position `end`.
   */
  frame(type: number, flags: number, streamId: number, lengthBytes: number, payloadBytes: number): Buffer {
    const bytes = this.#reserve(FRAME_HEADER_BYTES + payloadBytes);
    const at = this.#end;
    bytes[at] = lengthBytes >>> 16;
    bytes[at + 1] = lengthBytes >>> 8;
    bytes[at + 2] = lengthBytes;
    bytes[at + 3] = type;
    bytes[at + 4] = flags;
    bytes[at + 5] = streamId >>> 24;
    bytes[at + 6] = streamId >>> 16;
    bytes[at + 7] = streamId >>> 8;
    bytes[at + 8] = streamId;
    this.#end = at + FRAME_HEADER_BYTES + payloadBytes;
    this.sizeBytes += FRAME_HEADER_BYTES + payloadBytes;
    return bytes;
  }

  /** Position in the buffer where the payload of the last frame ends. */
  get end(): number {
    return this.#end;
  }

  /** Adds a frame with a 32-bit number as its payload: RST_STREAM or WINDOW_UPDATE. */
  number(type: number, streamId: number, value: number): void {
    this.frame(type, 0, streamId, 4, 4).writeUInt32BE(value, this.#end - 4);
  }

  ping(flags: number, bytes: Uint8Array): void {
    this.frame(FrameType.PING, flags, 0, 8, 8).set(bytes, this.#end - 8);
  }

  goAway(lastStreamId: number, code: number, reason: string): void {
    const text = Buffer.from(reason);
    const sizeBytes = 8 + text.length;
    const bytes = this.frame(FrameType.GOAWAY, 0, 0, sizeBytes, sizeBytes);
    const at = this.#end - sizeBytes;
    bytes.writeUInt32BE(lastStreamId, at);
    bytes.writeUInt32BE(code, at + 4);
    bytes.set(text, at + 8);
  }

  /** Adds a copy of the bytes. Meant for few bytes. */
  copy(bytes: Uint8Array): void {
    const scratch = this.#reserve(bytes.length);
    scratch.set(bytes, this.#end);
    this.#end += bytes.length;
    this.sizeBytes += bytes.length;
  }

  /** Adds the bytes without copying. They must not change until they are written. */
  reference(bytes: Uint8Array): void {
    this.#closeChunk();
    this.#addChunk(bytes);
    this.sizeBytes += bytes.length;
  }

  /** Calls back when everything that was added so far has been written or dropped. */
  whenWritten(callback: () => void): void {
    if (this.#callbacks === NO_CALLBACKS) this.#callbacks = [callback];
    else this.#callbacks.push(callback);
  }

  take(): Batch | undefined {
    if (this.sizeBytes === 0) return undefined;
    this.#closeChunk();
    const { sizeBytes } = this;
    const chunks = this.#chunks;
    const callbacks = this.#callbacks;
    const scratch = this.#scratch;
    this.#chunks = NO_CHUNKS;
    this.#callbacks = NO_CALLBACKS;
    this.sizeBytes = 0;
    this.#scratch = this.#spare;
    this.#spare = undefined;
    this.#start = 0;
    this.#end = 0;
    const release = (): void => {
      if (scratch?.length === SCRATCH_BYTES) this.#spare ??= scratch;
      for (const callback of callbacks) callback();
    };
    return { chunks, sizeBytes, release };
  }

  #reserve(sizeBytes: number): Buffer {
    const scratch = this.#scratch;
    if (scratch !== undefined && this.#end + sizeBytes <= scratch.length) return scratch;
    this.#closeChunk();
    // The full buffer cannot be reused, because chunks that are not written yet refer to it.
    this.#scratch = Buffer.allocUnsafeSlow(Math.max(SCRATCH_BYTES, sizeBytes));
    this.#start = 0;
    this.#end = 0;
    return this.#scratch;
  }

  #closeChunk(): void {
    if (this.#scratch !== undefined && this.#end > this.#start) {
      this.#addChunk(this.#scratch.subarray(this.#start, this.#end));
      this.#start = this.#end;
    }
  }

  #addChunk(bytes: Uint8Array): void {
    if (this.#chunks === NO_CHUNKS) this.#chunks = [bytes];
    else this.#chunks.push(bytes);
  }
}
