import { Budget } from "./budget.ts";
import { type FrameHandler, FrameReader } from "./frame-reader.ts";
import { HeaderBlocks } from "./header-blocks.ts";
import { type Fields, HpackEncoder } from "./hpack.ts";
import type { Http2Limits } from "./limits.ts";
import { type Batch, Output } from "./output.ts";
import { applySettings, type PeerSettings, writeSettings } from "./settings.ts";
import {
  ConnectionError,
  DEFAULT_WINDOW_BYTES,
  ErrorCode,
  Flag,
  FrameType,
  LAST_STREAM_ID,
  MAX_FRAME_BYTES,
  MAX_WINDOW_BYTES,
} from "./protocol.ts";
import { contentLength, type RequestFields } from "./request-fields.ts";
import { RequestWindows } from "./request-windows.ts";
import { Sender } from "./sender.ts";
import { Http2Stream, type StreamOwner } from "./stream.ts";

/** A request of more than this is a large one. Less than is held of one that nobody reads, so that it becomes known too. */
const LARGE_REQUEST_BYTES = 32 * 1024;
/** Numbers of streams that have ended and are remembered, so that what still comes for them is judged rightly. */
const REMEMBERED_STREAMS = 256;

/** What a session tells its owner. */
export interface SessionEvents {
  /** A request has begun. Its stream needs a consumer before this returns. */
  request(stream: Http2Stream, fields: RequestFields): void;
  /** There is something to take. Called at least once between two calls of `take` if so. */
  output(): void;
  /** A stream has ended, or the peer announces that it sends no more requests. */
  quieter(): void;
  /** The peer has broken the protocol or a limit. A GOAWAY that says so is to be taken; no other input has an effect. */
  failed(error: ConnectionError): void;
}

/** What a session is made of. */
export interface SessionOptions {
  readonly limits: Http2Limits;
  readonly events: SessionEvents;
  /** Milliseconds of a clock that is never stepped. */
  readonly nowMs: () => number;
}

/**
 * The server's side of an HTTP/2 connection (RFC 9113), without the connection: bytes go in, requests come out; answers go
 * in, bytes come out. Push is never used and priorities are ignored.
 */
export class Http2Session implements FrameHandler, StreamOwner {
  readonly streams: Map<number, Http2Stream> = new Map<number, Http2Stream>();
  readonly #limits: Http2Limits;
  readonly #events: SessionEvents;
  readonly #nowMs: () => number;
  readonly #reader: FrameReader = new FrameReader(this);
  readonly #blocks: HeaderBlocks;
  readonly #encoder = new HpackEncoder();
  readonly #output = new Output();
  readonly #sender: Sender;
  readonly #windows: RequestWindows;
  readonly #resets: Budget;
  readonly #idleFrames: Budget;
  readonly #peer: PeerSettings = { initialWindowBytes: DEFAULT_WINDOW_BYTES, maxFrameBytes: MAX_FRAME_BYTES };
  /** What is to be done when the peer acknowledges our SETTINGS, oldest first. */
  readonly #settings: (() => void)[] = [];
  readonly #pings = new Map<number, () => void>();
  #pingNumber = 0;
  /** The peer's first frame, its SETTINGS, was read. */
  #settled = false;
  #failure: ConnectionError | undefined;
  #lastStreamId = 0;
  /** The last stream that is taken on. */
  #acceptUpTo = LAST_STREAM_ID;
  #peerIsLeaving = false;
  /** The streams that ended last, by number: even where we ended them, odd where the peer did. */
  readonly #ended = new Float64Array(REMEMBERED_STREAMS);
  #receiveWindowBytes: number;
  /** What a stream that the peer opens now may send at first. */
  #streamWindowBytes: number;
  #unannouncedBytes = 0;
  /** The stream of the DATA frame that is being read. */
  #current: Http2Stream | undefined;
  #currentBytes = 0;
  #answersQueued = 0;
  #answersUnwritten = 0;

  constructor({ limits, events, nowMs }: SessionOptions) {
    this.#limits = limits;
    this.#events = events;
    this.#nowMs = nowMs;
    this.#blocks = new HeaderBlocks(limits);
    this.#sender = new Sender(this.#output, this.#encoder, this.#peer, (stream) => this.#answered(stream));
    this.#resets = new Budget(limits.resets, limits.resetsPerSecond, nowMs());
    this.#idleFrames = new Budget(limits.idleFrames, limits.idleFramesPerSecond, nowMs());
    this.#windows = new RequestWindows(limits, (windowBytes, acknowledged) =>
      this.#announceWindow(windowBytes, acknowledged),
    );
    writeSettings(this.#output, limits);
    this.#settings.push(() => {});
    this.#receiveWindowBytes = limits.connectionWindowBytes;
    this.#streamWindowBytes = limits.streamWindowBytes;
    this.#windowUpdate(0, limits.connectionWindowBytes - DEFAULT_WINDOW_BYTES);
  }

  /** Why the session is over; undefined while it is not. */
  get failure(): ConnectionError | undefined {
    return this.#failure;
  }

  /** The peer has said that it sends no more requests. */
  get peerIsLeaving(): boolean {
    return this.#peerIsLeaving;
  }

  /** There is something to take now. */
  get hasOutput(): boolean {
    return this.#output.sizeBytes > 0 || this.#sender.canSend;
  }

  /** Reads the next bytes of the connection. Never throws for what the peer did. */
  receive(chunk: Buffer): void {
    if (this.#failure !== undefined) return;
    try {
      this.#reader.push(chunk);
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      this.fail(error);
    }
  }

  /** The next bytes to write, about `limitBytes` at most; undefined where there are none. */
  take(limitBytes: number): Batch | undefined {
    this.#sender.fill(limitBytes);
    const answers = this.#answersQueued;
    if (answers > 0) {
      this.#answersQueued = 0;
      this.#output.whenWritten(() => {
        this.#answersUnwritten -= answers;
      });
    }
    return this.#output.take();
  }

  /** Asks the peer for a sign of life; calls back when it comes. */
  ping(answered: () => void): void {
    const number = ++this.#pingNumber;
    this.#pings.set(number, answered);
    const bytes = this.#output.frame(FrameType.PING, 0, 0, 8, 8);
    bytes.fill(0, this.#output.end - 8, this.#output.end);
    bytes.writeUInt32BE(number >>> 0, this.#output.end - 4);
    this.#events.output();
  }

  /** Announces the end: with `everything`, that of all that has not come yet; without, that requests should stop coming. */
  goAway(everything: boolean, code: number = ErrorCode.NO_ERROR, reason = ""): void {
    if (everything) this.#acceptUpTo = Math.min(this.#acceptUpTo, this.#lastStreamId);
    const text = Buffer.from(reason);
    const bytes = this.#output.frame(FrameType.GOAWAY, 0, 0, 8 + text.length, 8 + text.length);
    const at = this.#output.end - 8 - text.length;
    bytes.writeUInt32BE(this.#acceptUpTo, at);
    bytes.writeUInt32BE(code, at + 4);
    bytes.set(text, at + 8);
    this.#events.output();
  }

  /** Ends the session: every stream, and with a GOAWAY of that code. Later calls do nothing. */
  fail(error: ConnectionError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.goAway(true, error.code, error.message);
    for (const stream of this.streams.values()) this.#close(stream, error.code);
    this.#events.failed(error);
  }

  /** Ends every stream whose answer is not complete: nobody will read it. Those that are complete are still to be taken. */
  dropUnanswered(code: number): void {
    for (const stream of this.streams.values()) if (!stream.ended) this.#close(stream, code);
  }

  /** Ends every stream: the connection is lost. */
  dropAll(code: number): void {
    for (const stream of this.streams.values()) this.#close(stream, code);
  }

  // --- for streams

  respond(stream: Http2Stream, fields: Fields, endStream: boolean): void {
    this.#sender.headers(stream.id, fields, endStream);
    if (endStream) this.#answered(stream);
    this.#events.output();
  }

  readyToSend(stream: Http2Stream): void {
    this.#sender.ready(stream);
    this.#events.output();
  }

  consumed(stream: Http2Stream, sizeBytes: number): void {
    this.#credit(sizeBytes);
    stream.unannouncedBytes += sizeBytes;
    this.#openWindow(stream);
  }

  reset(stream: Http2Stream, code: number): void {
    this.#sendReset(stream.id, code);
    this.#close(stream, code);
  }

  // --- frames

  dataBegins(streamId: number, lengthBytes: number): void {
    this.#requireFrame(FrameType.DATA, streamId);
    if (streamId === 0) throw protocolError("DATA for no stream");
    if (streamId > this.#lastStreamId) throw protocolError("DATA for a stream that was never opened");
    this.#receiveWindowBytes -= lengthBytes;
    if (this.#receiveWindowBytes < 0) throw flowControlError("more DATA than the connection's window allows");
    this.#currentBytes = lengthBytes;
    const stream = this.streams.get(streamId);
    this.#current = stream;
    if (stream === undefined) {
      if (!this.#wasReset(streamId)) this.#streamError(streamId, ErrorCode.STREAM_CLOSED);
    } else if (stream.remoteEnded) {
      this.#streamError(streamId, ErrorCode.STREAM_CLOSED);
    } else {
      stream.receiveWindowBytes -= lengthBytes;
      if (stream.receiveWindowBytes < 0) this.#streamError(streamId, ErrorCode.FLOW_CONTROL_ERROR);
    }
  }

  data(slice: Buffer): void {
    const stream = this.#current;
    if (stream === undefined || stream.closed) {
      this.#credit(slice.length);
      return;
    }
    const before = stream.receivedBytes;
    stream.receivedBytes = before + slice.length;
    if (before <= LARGE_REQUEST_BYTES && stream.receivedBytes > LARGE_REQUEST_BYTES) this.#windows.add();
    stream.receive(slice);
  }

  dataEnds(flags: number, discardedBytes: number): void {
    const stream = this.#current;
    this.#current = undefined;
    if (this.#currentBytes === 0 && (flags & Flag.END_STREAM) === 0) this.#countIdleFrame("empty DATA frames");
    if (stream === undefined || stream.closed) {
      this.#credit(discardedBytes);
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
    switch (type) {
      case FrameType.HEADERS:
        if (streamId === 0 || streamId % 2 === 0) throw protocolError("HEADERS for a stream that no client may open");
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
        this.#pingOfPeer(flags, streamId, payload);
        break;
      case FrameType.GOAWAY:
        if (streamId !== 0) throw protocolError("GOAWAY for a stream");
        if (payload.length < 8) throw frameSizeError("GOAWAY");
        this.#peerIsLeaving = true;
        this.#events.quieter();
        break;
      case FrameType.WINDOW_UPDATE:
        this.#windowOfPeer(streamId, payload);
        break;
      case FrameType.PUSH_PROMISE:
        throw protocolError("PUSH_PROMISE from a client");
      default:
        this.#countIdleFrame("frames of an unknown type");
    }
  }

  /** The order of frames that holds for all types. */
  #requireFrame(type: number, streamId: number, flags = 0): void {
    if (!this.#settled && (type !== FrameType.SETTINGS || flags & Flag.ACK)) {
      throw protocolError("the first frame is not SETTINGS");
    }
    const expected = this.#blocks.streamId;
    if (expected === undefined) {
      if (type === FrameType.CONTINUATION) throw protocolError("CONTINUATION of nothing");
    } else if (type !== FrameType.CONTINUATION || streamId !== expected) {
      throw protocolError("another frame within a header block");
    }
  }

  #headers(): void {
    const { streamId, endStream, dependsOnItself, decoded } = this.#blocks.end();
    const existing = this.streams.get(streamId);
    if (existing !== undefined) {
      if (existing.remoteEnded) this.#streamError(streamId, ErrorCode.STREAM_CLOSED);
      else if (!endStream || !decoded.trailers) this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
      else this.#requestEnds(existing);
      return;
    }
    if (streamId <= this.#lastStreamId) {
      if (this.#wasReset(streamId)) return;
      const code = this.#hasEnded(streamId) ? ErrorCode.STREAM_CLOSED : ErrorCode.PROTOCOL_ERROR;
      throw new ConnectionError(code, "HEADERS for a stream that is closed");
    }
    this.#lastStreamId = streamId;
    if (streamId > this.#acceptUpTo) {
      this.#remember(streamId, true);
      return;
    }
    const { fields, tooLarge } = decoded;
    if (this.streams.size >= this.#limits.streams) this.#streamError(streamId, ErrorCode.REFUSED_STREAM);
    else if (tooLarge) this.#streamError(streamId, ErrorCode.ENHANCE_YOUR_CALM);
    else if (fields === undefined || dependsOnItself) this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
    else this.#open(streamId, fields, endStream);
  }

  #open(streamId: number, fields: RequestFields, endStream: boolean): void {
    const stream = new Http2Stream(this, streamId, this.#streamWindowBytes, this.#peer.initialWindowBytes);
    stream.expectedBytes = contentLength(fields);
    stream.remoteEnded = endStream;
    this.streams.set(streamId, stream);
    this.#events.request(stream, fields);
    if (endStream && !stream.closed) this.#requestEnds(stream);
  }

  #requestEnds(stream: Http2Stream): void {
    if (stream.expectedBytes !== undefined && stream.receivedBytes !== stream.expectedBytes) {
      this.#streamError(stream.id, ErrorCode.PROTOCOL_ERROR);
      return;
    }
    stream.receiveEnd();
  }

  #priority(streamId: number, payload: Buffer): void {
    if (streamId === 0) throw protocolError("PRIORITY for no stream");
    this.#countIdleFrame("PRIORITY frames");
    if (payload.length !== 5) this.#streamError(streamId, ErrorCode.FRAME_SIZE_ERROR);
    else if ((payload.readUInt32BE(0) & 0x7fffffff) === streamId) {
      this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
    }
  }

  #resetByPeer(streamId: number, payload: Buffer): void {
    if (streamId === 0) throw protocolError("RST_STREAM for no stream");
    if (payload.length !== 4) throw frameSizeError("RST_STREAM");
    if (streamId > this.#lastStreamId) throw protocolError("RST_STREAM for a stream that was never opened");
    // Also where the answer was faster: it has cost as much.
    this.#countReset();
    const stream = this.streams.get(streamId);
    if (stream === undefined) return;
    this.#remember(streamId, false);
    this.#close(stream, payload.readUInt32BE(0));
  }

  #settingsOfPeer(flags: number, streamId: number, payload: Buffer): void {
    if (streamId !== 0) throw protocolError("SETTINGS for a stream");
    if (flags & Flag.ACK) {
      if (payload.length > 0) throw frameSizeError("the acknowledgement of SETTINGS");
      const acknowledged = this.#settings.shift();
      if (acknowledged === undefined) throw protocolError("an acknowledgement of SETTINGS that were never sent");
      acknowledged();
      return;
    }
    this.#settled = true;
    const before = this.#peer.initialWindowBytes;
    const tableBytes = applySettings(this.#peer, payload);
    if (tableBytes !== undefined) this.#encoder.limitTable(tableBytes);
    const delta = this.#peer.initialWindowBytes - before;
    if (delta !== 0) for (const stream of this.streams.values()) this.#widen(stream, delta);
    this.#output.frame(FrameType.SETTINGS, Flag.ACK, 0, 0, 0);
    this.#countAnswer();
  }

  #pingOfPeer(flags: number, streamId: number, payload: Buffer): void {
    if (streamId !== 0) throw protocolError("PING for a stream");
    if (payload.length !== 8) throw frameSizeError("PING");
    if (flags & Flag.ACK) {
      const number = payload.readUInt32BE(4);
      const answered = this.#pings.get(number);
      this.#pings.delete(number);
      answered?.();
      return;
    }
    const bytes = this.#output.frame(FrameType.PING, Flag.ACK, 0, 8, 8);
    payload.copy(bytes, this.#output.end - 8);
    this.#countAnswer();
  }

  #windowOfPeer(streamId: number, payload: Buffer): void {
    if (payload.length !== 4) throw frameSizeError("WINDOW_UPDATE");
    const increment = payload.readUInt32BE(0) & 0x7fffffff;
    if (streamId === 0) {
      if (increment === 0) throw protocolError("WINDOW_UPDATE by nothing");
      if (!this.#sender.widen(increment)) throw flowControlError("a connection window of 2^31 bytes or more");
      if (this.#sender.canSend) this.#events.output();
      return;
    }
    if (streamId > this.#lastStreamId) throw protocolError("WINDOW_UPDATE for a stream that was never opened");
    const stream = this.streams.get(streamId);
    if (increment === 0) this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
    else if (stream !== undefined) this.#widen(stream, increment, true);
  }

  /** Overflow of a stream's window is its own error by WINDOW_UPDATE, and the connection's by SETTINGS (6.9.1, 6.9.2). */
  #widen(stream: Http2Stream, increment: number, ofStream = false): void {
    stream.sendWindowBytes += increment;
    if (stream.sendWindowBytes > MAX_WINDOW_BYTES) {
      if (!ofStream) throw flowControlError("a stream window of 2^31 bytes or more");
      this.#streamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR);
      return;
    }
    if (!this.#sender.hasWork(stream)) return;
    this.#sender.ready(stream);
    this.#events.output();
  }

  // --- the ends of streams

  /** The whole answer is in the output. */
  #answered(stream: Http2Stream): void {
    if (!stream.remoteEnded) {
      this.#sendReset(stream.id, ErrorCode.NO_ERROR);
    } else this.#remember(stream.id, false);
    this.#close(stream, ErrorCode.NO_ERROR);
  }

  #streamError(streamId: number, code: number): void {
    this.#sendReset(streamId, code);
    const stream = this.streams.get(streamId);
    if (stream !== undefined) this.#close(stream, code);
    this.#countReset();
  }

  #sendReset(streamId: number, code: number): void {
    const bytes = this.#output.frame(FrameType.RST_STREAM, 0, streamId, 4, 4);
    bytes.writeUInt32BE(code, this.#output.end - 4);
    this.#remember(streamId, true);
    this.#events.output();
  }

  #close(stream: Http2Stream, code: number): void {
    if (!this.streams.delete(stream.id)) return;
    this.#sender.forget(stream);
    if (stream.receivedBytes > LARGE_REQUEST_BYTES) this.#windows.remove();
    this.#credit(stream.close(code));
    this.#events.quieter();
  }

  #remember(streamId: number, byUs: boolean): void {
    this.#ended[((streamId - 1) / 2) % REMEMBERED_STREAMS] = streamId * 2 + (byUs ? 0 : 1);
  }

  /** What still comes for a stream that we have reset was on its way (RFC 9113, 5.1). */
  #wasReset(streamId: number): boolean {
    return this.#ended[((streamId - 1) / 2) % REMEMBERED_STREAMS] === streamId * 2;
  }

  #hasEnded(streamId: number): boolean {
    return this.#ended[((streamId - 1) / 2) % REMEMBERED_STREAMS] === streamId * 2 + 1;
  }

  // --- windows and limits

  /** Bytes of the connection's window are free again. */
  #credit(sizeBytes: number): void {
    this.#unannouncedBytes += sizeBytes;
    if (this.#unannouncedBytes * 2 < this.#limits.connectionWindowBytes) return;
    this.#windowUpdate(0, this.#unannouncedBytes);
    this.#receiveWindowBytes += this.#unannouncedBytes;
    this.#unannouncedBytes = 0;
  }

  /** Tells the peer of what was read of a stream, once it is half of the window. */
  #openWindow(stream: Http2Stream): void {
    if (stream.closed || stream.remoteEnded || stream.unannouncedBytes * 2 < this.#windows.windowBytes) return;
    this.#windowUpdate(stream.id, stream.unannouncedBytes);
    stream.receiveWindowBytes += stream.unannouncedBytes;
    stream.unannouncedBytes = 0;
  }

  #windowUpdate(streamId: number, increment: number): void {
    const bytes = this.#output.frame(FrameType.WINDOW_UPDATE, 0, streamId, 4, 4);
    bytes.writeUInt32BE(increment, this.#output.end - 4);
    this.#events.output();
  }

  /** A wider window holds from now on, a narrower one from when the peer knows of it. */
  #announceWindow(windowBytes: number, acknowledged: () => void): void {
    const delta = windowBytes - this.#streamWindowBytes;
    const apply = (): void => {
      this.#streamWindowBytes = windowBytes;
      for (const stream of this.streams.values()) {
        stream.receiveWindowBytes += delta;
        // Of a narrower window what was read may be half already.
        this.#openWindow(stream);
      }
    };
    if (delta > 0) apply();
    this.#settings.push(() => {
      if (delta < 0) apply();
      acknowledged();
    });
    writeSettings(this.#output, { streamWindowBytes: windowBytes });
    this.#events.output();
  }

  #countAnswer(): void {
    this.#answersQueued++;
    this.#answersUnwritten++;
    if (this.#answersUnwritten > this.#limits.unwrittenAnswers) throw calmError("SETTINGS and PINGs without a pause");
    this.#events.output();
  }

  #countReset(): void {
    if (!this.#resets.spend(this.#nowMs())) throw calmError("too many requests that were broken off");
  }

  #countIdleFrame(what: string): void {
    if (!this.#idleFrames.spend(this.#nowMs())) throw calmError(`too many ${what}`);
  }
}

function protocolError(problem: string): ConnectionError {
  return new ConnectionError(ErrorCode.PROTOCOL_ERROR, problem);
}

function flowControlError(problem: string): ConnectionError {
  return new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, problem);
}

function frameSizeError(frame: string): ConnectionError {
  return new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, `${frame} of a wrong length`);
}

function calmError(problem: string): ConnectionError {
  return new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, problem);
}
