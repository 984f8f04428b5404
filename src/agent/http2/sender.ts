import type { Fields, HpackEncoder } from "./hpack.ts";
import type { FloodGuard } from "./limits.ts";
import type { Output } from "./output.ts";
import { DEFAULT_WINDOW_BYTES, Flag, FRAME_HEADER_BYTES, FrameType, MAX_WINDOW_BYTES } from "./protocol.ts";
import type { PeerSettings } from "./control-frames.ts";
import type { Http2Stream } from "./stream.ts";

/** Number of bytes, including frame headers, that a stream sends per round. */
const ROUND_BYTES = 64 * 1024;

/** Sends the responses of a connection's streams in rounds, within the peer's windows. */
export class Sender {
  readonly #output: Output;
  readonly #encoder: HpackEncoder;
  readonly #peer: PeerSettings;
  readonly #floods: FloodGuard;
  readonly #answered: (stream: Http2Stream) => void;
  /** Streams that can send, in the order of their turns. */
  readonly #ready = new Set<Http2Stream>();
  /** Streams that wait for the connection's window. */
  readonly #starved = new Set<Http2Stream>();
  #windowBytes: number = DEFAULT_WINDOW_BYTES;

  /** @param answered called when the response of a stream is completely in the output */
  constructor(
    output: Output,
    encoder: HpackEncoder,
    peer: PeerSettings,
    floods: FloodGuard,
    answered: (stream: Http2Stream) => void,
  ) {
    this.#output = output;
    this.#encoder = encoder;
    this.#peer = peer;
    this.#floods = floods;
    this.#answered = answered;
  }

  get canSend(): boolean {
    return this.#ready.size > 0;
  }

  /** Sends a header block immediately. */
  headers(streamId: number, fields: Fields, endStream: boolean): void {
    const block = this.#encoder.encode(fields);
    const limitBytes = this.#peer.maxFrameBytes;
    const ended = endStream ? Flag.END_STREAM : 0;
    const whole = block.length <= limitBytes;
    const first = whole ? block : block.subarray(0, limitBytes);
    this.#output.frame(FrameType.HEADERS, ended | (whole ? Flag.END_HEADERS : 0), streamId, first.length, 0);
    this.#output.copy(first);
    for (let at = limitBytes; at < block.length; at += limitBytes) {
      const next = block.subarray(at, at + limitBytes);
      const last = at + limitBytes >= block.length;
      this.#output.frame(FrameType.CONTINUATION, last ? Flag.END_HEADERS : 0, streamId, next.length, 0);
      this.#output.copy(next);
    }
  }

  /** Lets the stream take its turn. Call it when the stream has new data to send, or when its window has grown. */
  ready(stream: Http2Stream): void {
    // A response without queued DATA does not wait for the peer's window, because the window limits neither header
    // fields nor trailers.
    if (stream.queuedBytes === 0) this.#starved.delete(stream);
    if (!this.#starved.has(stream)) this.#ready.add(stream);
  }

  /**
   * Whether the stream cannot end until the peer sends something: either the rest of the request, or a WINDOW_UPDATE
   * without which the agent cannot send the rest of the response.
   */
  needsPeer(stream: Http2Stream): boolean {
    if (!stream.remoteEnded) return true;
    return stream.queuedBytes > 0 && Math.min(this.#windowBytes, stream.sendWindowBytes) <= 0;
  }

  forget(stream: Http2Stream): void {
    this.#ready.delete(stream);
    this.#starved.delete(stream);
  }

  /** Enlarges a stream's window. Returns false if it exceeds the protocol's limit. */
  widenStream(stream: Http2Stream, increment: number): boolean {
    stream.sendWindowBytes += increment;
    if (stream.queuedBytes > 0 || stream.ended) this.ready(stream);
    return stream.sendWindowBytes <= MAX_WINDOW_BYTES;
  }

  /** Enlarges the connection's window. Returns false if it exceeds the protocol's limit. */
  widen(increment: number): boolean {
    this.#windowBytes += increment;
    for (const stream of this.#starved) this.#ready.add(stream);
    this.#starved.clear();
    return this.#windowBytes <= MAX_WINDOW_BYTES;
  }

  /** Moves data into the output until the output has about `limitBytes`. */
  fill(limitBytes: number): void {
    for (const stream of this.#ready) {
      if (this.#output.sizeBytes >= limitBytes) return;
      // If the stream can send more, `#sendRound` adds it again at the end of the set. So this loop reaches all other
      // streams before it reaches this one again.
      this.#ready.delete(stream);
      this.#sendRound(stream);
    }
  }

  #sendRound(stream: Http2Stream): void {
    for (let left = ROUND_BYTES; stream.queuedBytes > 0;) {
      const windowBytes = Math.min(this.#windowBytes, stream.sendWindowBytes);
      if (windowBytes <= 0) {
        if (stream.sendWindowBytes > 0) this.#starved.add(stream);
        return;
      }
      if (left <= FRAME_HEADER_BYTES) {
        this.#ready.add(stream);
        return;
      }
      // The limit includes the frame header, so that a full frame fills exactly one TLS record.
      const roomBytes = Math.min(left, this.#peer.maxFrameBytes) - FRAME_HEADER_BYTES;
      const sizeBytes = Math.min(stream.queuedBytes, windowBytes, roomBytes);
      const last = sizeBytes === stream.queuedBytes && stream.ended && stream.trailers === undefined;
      this.#output.frame(FrameType.DATA, last ? Flag.END_STREAM : 0, stream.id, sizeBytes, 0);
      this.#floods.earn();
      stream.moveTo(this.#output, sizeBytes);
      stream.sendWindowBytes -= sizeBytes;
      this.#windowBytes -= sizeBytes;
      left -= FRAME_HEADER_BYTES + sizeBytes;
      if (last) {
        this.#answered(stream);
        return;
      }
    }
    if (!stream.ended) return;
    if (stream.trailers === undefined) this.#output.frame(FrameType.DATA, Flag.END_STREAM, stream.id, 0, 0);
    else this.headers(stream.id, stream.trailers, true);
    this.#answered(stream);
  }
}
