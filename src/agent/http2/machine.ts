import { reportInternalError } from "../domain/index.ts";
import { FloodGuard, type Http2Limits } from "./limits.ts";
import { type FrameHandler, FrameReader } from "./frame-reader.ts";
import { HeaderBlocks } from "./header-blocks.ts";
import { type Fields, HpackEncoder } from "./hpack.ts";
import { type Batch, Output } from "./output.ts";
import { applySettings, type PeerSettings, Pings } from "./control-frames.ts";
import type { MachineEvents, MachineOptions } from "./machine-options.ts";
import {
  ConnectionError,
  DEFAULT_WINDOW_BYTES,
  ErrorCode,
  Flag,
  flowControlError,
  frameSizeError,
  FrameType,
  LAST_STREAM_ID,
  MAX_FRAME_BYTES,
  protocolError,
} from "./protocol.ts";
import { contentLength, type RequestFields } from "./request-fields.ts";
import { ReceiveWindows } from "./receive-windows.ts";
import { Sender } from "./sender.ts";
import { EndedStreams, HeldBlocks, Http2Stream, type StreamOwner } from "./stream.ts";

/** The server side of HTTP/2 (RFC 9113) as a state machine without a socket. No server push, no priorities. */
export class Http2Machine implements FrameHandler, StreamOwner {
  readonly streams: Map<number, Http2Stream> = new Map<number, Http2Stream>();
  readonly blocks: HeldBlocks = new HeldBlocks();
  readonly #limits: Http2Limits;
  readonly #events: MachineEvents;
  readonly #reader: FrameReader = new FrameReader(this);
  readonly #blocks: HeaderBlocks;
  readonly #encoder = new HpackEncoder();
  readonly #output = new Output();
  readonly #sender: Sender;
  readonly #windows: ReceiveWindows;
  readonly #floods: FloodGuard;
  readonly #peer: PeerSettings = { initialWindowBytes: DEFAULT_WINDOW_BYTES, maxFrameBytes: MAX_FRAME_BYTES };
  readonly #pings: Pings;
  /** Whether the peer's first SETTINGS frame was read. */
  #settled = false;
  #failure: ConnectionError | undefined;
  #lastStreamId = 0;
  /** Largest stream id that the agent still accepts. Lower than LAST_STREAM_ID after a GOAWAY. */
  #acceptUpTo = LAST_STREAM_ID;
  /** Whether the peer announced (GOAWAY) that it sends no more requests. */
  peerIsLeaving = false;
  /** Whether a response was completed since the last call of `take`. */
  hasAnswer = false;
  readonly #ended = new EndedStreams();
  /** Stream of the DATA frame that is being read. */
  #current: Http2Stream | undefined;
  #currentBytes = 0;

  constructor({ limits, events, nowMs, secret }: MachineOptions) {
    this.#limits = limits;
    this.#events = events;
    this.#blocks = new HeaderBlocks(limits, secret);
    this.#floods = new FloodGuard(limits, nowMs);
    this.#pings = new Pings(this.#output, this.#floods);
    this.#sender = new Sender(this.#output, this.#encoder, this.#peer, this.#floods, this.#answered);
    this.#windows = new ReceiveWindows(limits, this.#output, this.streams);
  }

  get failure(): ConnectionError | undefined {
    return this.#failure;
  }

  /** Call it when the peer was authenticated. Until then, every frame counts as useless (see FloodGuard). */
  markAuthenticated(): void {
    this.#floods.markAuthenticated();
    this.#blocks.remembers = this.#limits.rememberedBlocks > 0;
  }

  /** Handles input of the peer. Never throws: every error is passed to `fail`. */
  receive(chunk: Buffer): void {
    if (this.#failure !== undefined) return;
    try {
      this.#reader.push(chunk);
    } catch (error) {
      if (!(error instanceof ConnectionError)) reportInternalError(error);
      this.fail(
        error instanceof ConnectionError ? error : new ConnectionError(ErrorCode.INTERNAL_ERROR, "internal error"),
      );
    }
  }

  /** Passes a request slice to the consumer; undefined at the end. If the consumer throws, only the stream ends. */
  #deliver(stream: Http2Stream, slice: Buffer | undefined): void {
    try {
      if (slice === undefined) stream.receiveEnd();
      else stream.receive(slice);
    } catch (error) {
      reportInternalError(error);
      stream.reset(ErrorCode.INTERNAL_ERROR);
    }
  }

  /** Returns up to about `limitBytes` of output, or undefined if there is none. */
  take(limitBytes: number): Batch | undefined {
    this.hasAnswer = false;
    this.#sender.fill(limitBytes);
    this.#floods.taken(this.#output);
    return this.#output.take();
  }

  ping(answered: () => void): void {
    this.#pings.send(answered);
    this.#events.output();
  }

  /** Asks the peer, with a GOAWAY, to send no new requests. With `everything`, also refuses requests in flight. */
  goAway(everything: boolean, code: number = ErrorCode.NO_ERROR, reason = ""): void {
    if (everything) this.#acceptUpTo = Math.min(this.#acceptUpTo, this.#lastStreamId);
    this.#output.goAway(this.#acceptUpTo, code, reason);
    this.#events.output();
  }

  /** Ends all streams and sends a GOAWAY with the error's code. Later calls do nothing. */
  fail(error: ConnectionError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.goAway(true, error.code, error.message);
    this.drop("all", error.code);
    this.#events.failed(error);
  }

  /**
   * Closes the selected streams: all, the "unanswered" ones (their response is incomplete), or the "waiting_for_peer"
   * ones (they cannot end until the peer sends something).
   */
  drop(which: "all" | "unanswered" | "waiting_for_peer", code: number): void {
    if (which === "all") this.#blocks.forget();
    for (const stream of this.streams.values()) {
      const isSelected =
        which === "waiting_for_peer" ? this.#sender.needsPeer(stream) : which === "all" || !stream.ended;
      if (isSelected) this.#close(stream, code);
    }
  }

  // --- called by streams

  respond(stream: Http2Stream, fields: Fields): void {
    this.#sender.headers(stream.id, fields, false);
    this.#events.output();
  }

  readyToSend(stream: Http2Stream): void {
    this.#sender.ready(stream);
    if (stream.ended) this.hasAnswer = true;
    this.#events.output();
  }

  consumed(stream: Http2Stream, sizeBytes: number): void {
    this.#windows.consumed(stream, sizeBytes);
    // Usually no WINDOW_UPDATE is due yet, so nothing is sent.
    if (this.#output.sizeBytes > 0) this.#events.output();
  }

  reset(stream: Http2Stream, code: number): void {
    this.#sendReset(stream.id, code);
    this.#close(stream, code);
  }

  // --- frames

  dataBegins(streamId: number, lengthBytes: number): void {
    this.#requireFrame(FrameType.DATA, streamId);
    if (streamId === 0) throw protocolError("DATA without a stream id");
    if (this.#isIdle(streamId)) throw protocolError("DATA for a stream that was never opened");
    this.#floods.frame();
    this.#windows.spend(lengthBytes);
    this.#currentBytes = lengthBytes;
    const stream = this.streams.get(streamId);
    this.#current = stream;
    if (stream === undefined && this.#ended.wasReset(streamId)) {
      this.#floods.smallFrame("DATA frames for a request that was reset");
    } else if (stream === undefined || stream.remoteEnded) {
      this.#streamError(streamId, ErrorCode.STREAM_CLOSED);
    } else {
      if (lengthBytes > 0) this.#floods.earn(1);
      stream.receiveWindowBytes -= lengthBytes;
      if (stream.receiveWindowBytes < 0) this.#streamError(streamId, ErrorCode.FLOW_CONTROL_ERROR);
    }
  }

  data(slice: Buffer): void {
    const stream = this.#current;
    if (stream === undefined || stream.closed) {
      this.#windows.free(slice.length);
      return;
    }
    this.#windows.received(stream, slice.length);
    this.#deliver(stream, slice);
  }

  dataEnds(flags: number, discardedBytes: number): void {
    const stream = this.#current;
    this.#current = undefined;
    if (this.#currentBytes === 0 && (flags & Flag.END_STREAM) === 0) this.#floods.idleFrame("empty DATA frames");
    if (stream === undefined || stream.closed) {
      this.#windows.free(discardedBytes);
      return;
    }
    if (discardedBytes > 0) this.consumed(stream, discardedBytes);
    if (flags & Flag.END_STREAM) this.#requestEnds(stream);
    else if (stream.expectedBytes !== undefined && stream.receivedBytes > stream.expectedBytes) {
      this.#streamError(stream.id, ErrorCode.PROTOCOL_ERROR);
    }
  }

  frame(type: number, flags: number, streamId: number, payload: Buffer): void {
    this.#requireFrame(type, streamId, flags);
    this.#floods.frame();
    switch (type) {
      case FrameType.HEADERS:
        if (streamId === 0 || streamId % 2 === 0) throw protocolError("HEADERS with an invalid stream id");
        this.#blocks.begin(streamId, flags, payload);
        if (flags & Flag.END_HEADERS) this.#headers();
        break;
      case FrameType.CONTINUATION:
        this.#blocks.continue(payload);
        if (flags & Flag.END_HEADERS) this.#headers();
        break;
      case FrameType.PRIORITY:
        this.#priority(streamId, payload);
        break;
      case FrameType.RST_STREAM:
        this.#resetByPeer(streamId, payload);
        break;
      case FrameType.SETTINGS:
        this.#settingsOfPeer(flags, streamId, payload);
        break;
      case FrameType.PING:
        if (this.#pings.receive(flags, streamId, payload)) this.#events.output();
        break;
      case FrameType.GOAWAY:
        if (streamId !== 0) throw protocolError("GOAWAY with a stream id");
        if (payload.length < 8) throw frameSizeError("GOAWAY with an invalid length");
        if (this.peerIsLeaving) this.#floods.idleFrame("GOAWAY frames");
        this.peerIsLeaving = true;
        this.#events.maybeIdle();
        break;
      case FrameType.WINDOW_UPDATE:
        this.#windowOfPeer(streamId, payload);
        break;
      case FrameType.PUSH_PROMISE:
        throw protocolError("PUSH_PROMISE from a client");
      default:
        this.#floods.idleFrame("frames of an unknown type");
    }
  }

  /** Whether a stream was never opened. Even ids belong to the server, which pushes nothing (RFC 9113, 5.1). */
  #isIdle(streamId: number): boolean {
    return streamId > this.#lastStreamId || (streamId > 0 && streamId % 2 === 0);
  }

  #requireFrame(type: number, streamId: number, flags = 0): void {
    if (!this.#settled && (type !== FrameType.SETTINGS || flags & Flag.ACK)) {
      throw protocolError("the first frame is not SETTINGS");
    }
    this.#blocks.requireFrame(type, streamId);
  }

  #headers(): void {
    const { streamId, endStream, dependsOnItself, decoded } = this.#blocks.end();
    this.#floods.headers();
    const existing = this.streams.get(streamId);
    if (existing !== undefined) {
      if (existing.remoteEnded) this.#streamError(streamId, ErrorCode.STREAM_CLOSED);
      else if (!endStream || !decoded.trailers) this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
      else this.#requestEnds(existing);
      return;
    }
    if (streamId <= this.#lastStreamId) {
      const code = this.#ended.hasEnded(streamId) ? ErrorCode.STREAM_CLOSED : ErrorCode.PROTOCOL_ERROR;
      if (!this.#ended.wasReset(streamId)) throw new ConnectionError(code, "HEADERS for a stream that is closed");
      this.#floods.reset();
      return;
    }
    this.#lastStreamId = streamId;
    if (streamId > this.#acceptUpTo) {
      this.#ended.add(streamId, true);
      this.#floods.reset();
      return;
    }
    if (this.streams.size >= this.#limits.streams) this.#streamError(streamId, ErrorCode.REFUSED_STREAM);
    else if (decoded.tooLarge) this.#streamError(streamId, ErrorCode.ENHANCE_YOUR_CALM);
    else if (decoded.fields === undefined || dependsOnItself) this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
    else this.#open(streamId, decoded.fields, endStream);
  }

  #open(streamId: number, fields: RequestFields, endStream: boolean): void {
    const stream = new Http2Stream(this, streamId, this.#windows.streamBytes, this.#peer.initialWindowBytes);
    stream.expectedBytes = contentLength(fields);
    stream.remoteEnded = endStream;
    this.streams.set(streamId, stream);
    this.#floods.earn();
    this.#events.request(stream, fields);
    if (endStream && !stream.closed) this.#requestEnds(stream);
  }

  #requestEnds(stream: Http2Stream): void {
    const isWhole = stream.expectedBytes === undefined || stream.receivedBytes === stream.expectedBytes;
    if (isWhole) this.#deliver(stream, undefined);
    else this.#streamError(stream.id, ErrorCode.PROTOCOL_ERROR);
  }

  #priority(streamId: number, payload: Buffer): void {
    if (streamId === 0) throw protocolError("PRIORITY without a stream id");
    this.#floods.idleFrame("PRIORITY frames");
    if (payload.length !== 5) this.#streamError(streamId, ErrorCode.FRAME_SIZE_ERROR);
    else if ((payload.readUInt32BE(0) & 0x7fffffff) === streamId) {
      this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
    }
  }

  #resetByPeer(streamId: number, payload: Buffer): void {
    if (streamId === 0) throw protocolError("RST_STREAM without a stream id");
    if (payload.length !== 4) throw frameSizeError("RST_STREAM with an invalid length");
    if (this.#isIdle(streamId)) throw protocolError("RST_STREAM for a stream that was never opened");
    // The reset counts even if the response is complete, because the request has cost as much CPU time.
    this.#floods.reset();
    const stream = this.streams.get(streamId);
    if (stream === undefined) return;
    this.#ended.add(streamId, false);
    this.#close(stream, payload.readUInt32BE(0));
  }

  #settingsOfPeer(flags: number, streamId: number, payload: Buffer): void {
    if (streamId !== 0) throw protocolError("SETTINGS with a stream id");
    if (flags & Flag.ACK) {
      if (payload.length > 0) throw frameSizeError("an acknowledgement of SETTINGS with an invalid length");
      if (!this.#windows.acknowledged()) throw protocolError("an acknowledgement of SETTINGS that were never sent");
      this.#events.output();
      return;
    }
    this.#settled = true;
    const before = this.#peer.initialWindowBytes;
    applySettings(this.#peer, payload, (limitBytes) => this.#encoder.limitTable(limitBytes));
    const delta = this.#peer.initialWindowBytes - before;
    for (const stream of delta === 0 ? [] : this.streams.values()) {
      // A SETTINGS frame that makes a stream's window overflow is a connection error (RFC 9113, 6.9.2).
      if (!this.#sender.widenStream(stream, delta)) throw flowControlError("a stream window of 2^31 bytes or more");
    }
    this.#output.frame(FrameType.SETTINGS, Flag.ACK, 0, 0, 0);
    this.#floods.answer("SETTINGS");
    this.#events.output();
  }

  #windowOfPeer(streamId: number, payload: Buffer): void {
    if (payload.length !== 4) throw frameSizeError("WINDOW_UPDATE with an invalid length");
    this.#floods.smallFrame("WINDOW_UPDATE frames");
    const increment = payload.readUInt32BE(0) & 0x7fffffff;
    if (this.#isIdle(streamId)) throw protocolError("WINDOW_UPDATE for a stream that was never opened");
    const stream = this.streams.get(streamId);
    if (streamId === 0) {
      if (increment === 0) throw protocolError("WINDOW_UPDATE with an increment of 0");
      if (!this.#sender.widen(increment)) throw flowControlError("a connection window of 2^31 bytes or more");
    } else if (increment === 0) {
      this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
    } else if (stream !== undefined && !this.#sender.widenStream(stream, increment)) {
      this.#streamError(streamId, ErrorCode.FLOW_CONTROL_ERROR);
    }
    if (this.#sender.canSend) this.#events.output();
  }

  // --- ends of streams

  /** Closes a stream after the last frame of its response was added to the output. */
  readonly #answered = (stream: Http2Stream): void => {
    if (stream.remoteEnded) this.#ended.add(stream.id, false);
    else this.#sendReset(stream.id, ErrorCode.NO_ERROR);
    this.#close(stream, ErrorCode.NO_ERROR);
  };

  #streamError(streamId: number, code: number): void {
    this.#sendReset(streamId, code);
    const stream = this.streams.get(streamId);
    if (stream !== undefined) this.#close(stream, code);
    this.#floods.reset();
  }

  #sendReset(streamId: number, code: number): void {
    this.#output.number(FrameType.RST_STREAM, streamId, code);
    this.#floods.resetSent();
    this.#ended.add(streamId, true);
    this.#events.output();
  }

  #close(stream: Http2Stream, code: number): void {
    if (!this.streams.delete(stream.id)) return;
    this.#sender.forget(stream);
    this.#windows.ended(stream, stream.close(code));
    if (this.streams.size === 0) this.blocks.drop();
    this.#events.maybeIdle();
  }
}
