import { clone, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import {
  AgentError,
  type Allowance,
  type Instant,
  type LentBytes,
  MESSAGE_LIMIT_BYTES,
  type Share,
  TIMER_LIMIT_MS,
} from "../domain/index.ts";
import { ErrorCode, type Fields, type Http2Stream, type RequestFields, type StreamConsumer } from "../http2/index.ts";
import { decodeMessage, type Frame } from "./codec.ts";
import type { Connection } from "../listening/index.ts";
import { messageTooLarge, PREFIX_BYTES } from "./framing.ts";
import type { SpareMemory } from "./message-buffers.ts";
import { RequestMessages } from "./request-messages.ts";
import { errorFields, OK_FIELDS } from "./status.ts";

/** Queued bytes below which `drained` resolves: one file chunk is sent while the next is read. */
const LOW_WATER_BYTES = 256 * 1024;
/** How long the status of an aborted call may wait behind data that the client does not read. */
const LINGER_MS = 1_000;
/** How long the status of a refused call waits for the end of its request. */
const PATIENCE_MS = 1_000;
/** What clients send of a deadline that has passed: a nanosecond (grpc-go), or none. */
const SHORTEST_DEADLINE_MS = 1;
/** A call that has moved more than this counts as large. */
const LARGE_CALL_BYTES = 1024 * 1024;
/** A unary request of that size consists mostly of fields that nobody knows. */
const LARGE_MESSAGE_BYTES = 128 * 1024;

/** What a call needs beside its stream. */
export interface CallSetup {
  readonly metadata: RequestFields;
  readonly receivedAt: Instant;
  readonly connection: Connection;
  readonly responseFields: Fields;
  /** Bounds the received bytes of all calls that no handler has taken yet. */
  readonly unread: Allowance;
  /** Bounds the memory that all calls keep for their next messages. */
  readonly spare: SpareMemory;
  /** Bounds what calls hold after `failWhenRead`: the oldest gives way. */
  readonly unreadAnswers: Allowance;
  /** Most bytes of a request's message. */
  readonly messageLimitBytes: number;
  /** Called with 1 when the call becomes large, and with -1 when a large call is over. */
  readonly onLarge: (change: 1 | -1) => void;
}

/**
 * One call on one HTTP/2 stream, headers to trailers. Its handler reads and sends messages; the router ends it. Its
 * four ends:
 *
 * | end          | by                            | handler's signal | unsent messages | status                    |
 * | ------------ | ----------------------------- | ---------------- | --------------- | ------------------------- |
 * | finish       | the handler's end             | as it is         | sent            | after them                |
 * | abort        | cancel, lost connection, stop | aborted          | sent            | the handler's, if it can  |
 * |              |                               |                  |                 | still be sent             |
 * | failSoon     | deadline, a share taken away  | aborted          | dropped but one | within 1 s; then a reset  |
 * | failWhenRead | another call takes over       | aborted          | dropped but one | when the client reads on; |
 * |              |                               |                  |                 | `unreadAnswers` bounds it |
 *
 * "But one": the message that has begun is completed.
 */
export class Call implements StreamConsumer {
  readonly metadata: RequestFields;
  /** When its headers arrived. */
  readonly receivedAt: Instant;
  readonly connection: Connection;
  readonly #stream: Http2Stream;
  readonly #setup: CallSetup;
  readonly #request: RequestMessages;
  #queuedBytes = 0;
  #movedBytes = 0;
  #isLarge = false;
  #waiters: (() => void)[] | undefined;
  #deadline: NodeJS.Timeout | undefined;
  #aborted: AgentError | undefined;
  #controller: AbortController | undefined;
  #finished = false;
  #refuse: (() => void) | undefined;
  #patience: NodeJS.Timeout | undefined;
  /** What it holds since `failWhenRead`. */
  #unreadAnswer: Share | undefined;

  constructor(stream: Http2Stream, setup: CallSetup) {
    this.metadata = setup.metadata;
    this.receivedAt = setup.receivedAt;
    this.connection = setup.connection;
    this.#stream = stream;
    this.#setup = setup;
    const { messageLimitBytes, spare, unread } = setup;
    const newShare = (): Share => unread.share(this.connection, (error) => this.failSoon(error));
    this.#request = new RequestMessages(stream, messageLimitBytes, spare, newShare);
    stream.consumer = this;
  }

  /**
   * Aborted when the client cancels, the deadline passes, the connection is lost or the server ends; the reason is an
   * AgentError. Never aborted because the handler has ended. Created on demand, as most handlers never use it.
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted !== undefined) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  /** Why the call was aborted; undefined: it was not. */
  get aborted(): AgentError | undefined {
    return this.#aborted;
  }

  /** Bytes queued by `send` that the connection has not yet taken. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /**
   * The request messages in order, without their prefix. Has backpressure. Beside the call's flow-control window it
   * holds about 80 KiB while the handler does not ask for the next message, and one whole message while it does. They
   * end at the client's half-close, with AgentError at a refused message, and with the signal's reason on abort.
   */
  messages(): RequestMessages {
    return this.#request;
  }

  /**
   * Decodes the request's only message, and gives a large one's memory back. Fields of bytes are views of it: a short
   * path would hold all of it, uncounted, until the call is over. Throws AgentError as `decodeMessage` does.
   */
  decode<Desc extends DescMessage>(schema: Desc, message: LentBytes): MessageShape<Desc> {
    const { bytes } = message;
    if (bytes.length < LARGE_MESSAGE_BYTES) return decodeMessage(schema, bytes);
    try {
      // Not of a Buffer: its slices, which clone takes for copies, are views.
      const view = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      return clone(schema, decodeMessage(schema, view));
    } finally {
      // It may be entropy.
      bytes.fill(0);
      message.release();
    }
  }

  /**
   * Queues one message without copying its parts. `release` runs once when the caller may change the bytes, even if the
   * call has ended and nothing was sent. Throws AgentError for a message over the limit.
   */
  send(frame: Frame, release?: () => void): void {
    const sizeBytes = this.#sizeBytes(frame);
    if (this.#finished || this.#stream.closed) {
      release?.();
      return;
    }
    if (!this.#stream.headersSent) this.#stream.respond(this.#setup.responseFields);
    this.#queuedBytes += sizeBytes;
    this.#count(sizeBytes);
    this.#stream.write(frame, () => {
      this.#queuedBytes -= sizeBytes;
      release?.();
      if (this.#queuedBytes < LOW_WATER_BYTES) this.#releaseWaiters();
    });
  }

  /** Sends the only message of an answer. Throws AgentError for a message over the limit. */
  answer(frame: Frame): void {
    this.#sizeBytes(frame);
    if (this.#finished || this.#stream.closed) return;
    this.#stream.respond(this.#setup.responseFields);
    this.#stream.write(frame);
  }

  /** Resolves when `queuedBytes` is low enough to send more, or when the call has ended. Never rejects. */
  drained(): Promise<void> {
    if (this.#queuedBytes < LOW_WATER_BYTES || this.#finished || this.#stream.closed) return Promise.resolve();
    return new Promise((resolve) => {
      (this.#waiters ??= []).push(resolve);
    });
  }

  /**
   * Starts the deadline, counted from now. When it passes the call is aborted and answered at once. Throws AgentError
   * where it has passed on its way here: such a call is not begun.
   */
  startDeadline(timeoutMs: number): void {
    if (timeoutMs < SHORTEST_DEADLINE_MS) throw deadlinePassed();
    // As good as none.
    if (timeoutMs > TIMER_LIMIT_MS) return;
    this.#deadline = setTimeout(() => {
      this.failSoon(deadlinePassed());
    }, timeoutMs);
  }

  /**
   * Runs `refuse` once the request is complete or too late, or its client is gone; drops its messages. After an earlier
   * answer the agent would have to reset the stream. A client that still sends may take that for a broken connection
   * (curl: error 92).
   */
  whenRequestEnds(refuse: () => void): void {
    this.#refuse = refuse;
    if (this.#stream.remoteEnded || this.#stream.closed) {
      this.#requestEnded();
      return;
    }
    this.#patience = setTimeout(() => this.#requestEnded(), PATIENCE_MS);
    this.#patience.unref();
    this.#request.discard();
  }

  /** Ends the call with this error, even if its client does not read: a second later the rest, or all, is dropped. */
  failSoon(error: AgentError): void {
    this.#fail(error);
    setTimeout(() => this.#stream.reset(ErrorCode.CANCEL), LINGER_MS).unref();
  }

  /**
   * Ends the call with this error, which its client learns whenever it reads on: the message that has begun is
   * completed, the others are dropped. The connection's end ends the wait; `unreadAnswers` bounds what waits.
   */
  failWhenRead(error: AgentError): void {
    const heldBytes = this.#fail(error);
    if (this.#isLarge) this.#setLarge(false);
    if (heldBytes === 0) return;
    const drop = (): void => this.#stream.reset(ErrorCode.CANCEL);
    this.#unreadAnswer = this.#setup.unreadAnswers.share(this.connection, drop);
    try {
      this.#unreadAnswer.set(heldBytes);
    } catch {
      drop();
    }
  }

  /** Aborts the handler's signal and messages. Later calls do nothing. */
  abort(reason: AgentError): void {
    if (this.#aborted !== undefined) return;
    this.#aborted = reason;
    this.#request.fail(reason);
    this.#releaseWaiters();
    this.#controller?.abort(reason);
  }

  /** Ends the response with a status after all that was sent; resets an incomplete request. Later calls do nothing. */
  finish(error?: AgentError): void {
    this.#endResponse(error, false);
  }

  /** Returns the bytes that the client still has to take. */
  #fail(error: AgentError): number {
    this.abort(error);
    return this.#endResponse(error, true);
  }

  #endResponse(error: AgentError | undefined, dropsUnsent: boolean): number {
    if (this.#finished) return 0;
    this.#finished = true;
    if (this.#deadline !== undefined) clearTimeout(this.#deadline);
    this.#releaseWaiters();
    const heldBytes = dropsUnsent ? this.#stream.dropUnsent() : 0;
    const status = error === undefined ? OK_FIELDS : errorFields(error);
    if (this.#stream.headersSent) this.#stream.end(status);
    else this.#stream.respond({ ...this.#setup.responseFields, ...status }, true);
    this.#request.discard();
    return heldBytes;
  }

  // --- StreamConsumer

  data(slice: Buffer): void {
    this.#count(slice.length);
    this.#request.data(slice);
  }

  end(): void {
    this.#request.end();
    this.#requestEnded();
  }

  closed(code: number): void {
    if (this.#deadline !== undefined) clearTimeout(this.#deadline);
    if (!this.#finished) {
      const problem = code === ErrorCode.CANCEL ? "the client cancelled the call" : "the connection was lost";
      this.abort(new AgentError("CANCELLED", "CANCELLED", problem));
    }
    this.#releaseWaiters();
    this.#requestEnded();
    this.#unreadAnswer?.set(0);
    if (this.#isLarge) this.#setLarge(false);
  }

  #count(sizeBytes: number): void {
    const before = this.#movedBytes;
    this.#movedBytes += sizeBytes;
    if (before <= LARGE_CALL_BYTES && this.#movedBytes > LARGE_CALL_BYTES) this.#setLarge(true);
  }

  #setLarge(isLarge: boolean): void {
    this.#isLarge = isLarge;
    this.#setup.onLarge(isLarge ? 1 : -1);
  }

  #requestEnded(): void {
    const refuse = this.#refuse;
    if (refuse === undefined) return;
    this.#refuse = undefined;
    if (this.#patience !== undefined) clearTimeout(this.#patience);
    refuse();
  }

  /** Throws AgentError for a message over the limit. */
  #sizeBytes(frame: Frame): number {
    let sizeBytes = 0;
    for (const part of frame) sizeBytes += part.length;
    const messageBytes = sizeBytes - PREFIX_BYTES;
    if (messageBytes > MESSAGE_LIMIT_BYTES) throw messageTooLarge(messageBytes, MESSAGE_LIMIT_BYTES);
    return sizeBytes;
  }

  #releaseWaiters(): void {
    const waiters = this.#waiters;
    if (waiters === undefined) return;
    this.#waiters = undefined;
    for (const resolve of waiters) resolve();
  }
}

function deadlinePassed(): AgentError {
  return new AgentError("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "the call's deadline has passed");
}
