import { clone, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import {
  AgentError,
  type Allowance,
  type Instant,
  type BorrowedBytes,
  clearUnreferenced,
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

/**
 * Number of queued bytes below which `drained()` resolves. It is above 0, so that the agent reads the next chunk of a
 * file while it still sends the previous ones.
 */
const LOW_WATER_BYTES = 256 * 1024;
/** How long the status of an aborted call may wait behind data that the client does not read. */
const LINGER_MS = 1_000;
/** How long the agent waits for the end of a rejected call's request before it sends the status. */
const REQUEST_END_WAIT_MS = 1_000;
/**
 * A smaller grpc-timeout means that the deadline has already passed. In this case grpc-go sends a timeout of one
 * nanosecond.
 */
const SHORTEST_DEADLINE_MS = 1;
/** A call that has transferred more bytes than this counts as large (`onLargeCalls`). */
const LARGE_CALL_BYTES = 1024 * 1024;
/**
 * If a unary request has at least this size, `decode` copies its fields and releases it. This saves memory, because no
 * valid field is that large, so most of such a request is unknown fields, which are not copied.
 */
const LARGE_MESSAGE_BYTES = 128 * 1024;

/** The request of a call, and the limits and memory that it shares with other calls. */
export interface CallSetup {
  readonly metadata: RequestFields;
  readonly receivedAt: Instant;
  readonly connection: Connection;
  readonly responseFields: Fields;
  /** Limits the bytes that all calls together have received and that their handlers have not read yet. */
  readonly unread: Allowance;
  /** Limits the memory that all calls together keep allocated for the messages that they will receive next. */
  readonly spare: SpareMemory;
  /**
   * Limits the memory for partly sent messages of calls that `failOnRead` has ended. Such a message is kept until its
   * client has read it. At the limit, the stream of the oldest such call is reset.
   */
  readonly unreadAnswers: Allowance;
  readonly messageLimitBytes: number;
  /** Counts the large calls: called with 1 when a call becomes large, and with -1 when a large call has ended. */
  readonly onLarge: (change: 1 | -1) => void;
}

/**
 * One call on one HTTP/2 stream, whose handler reads and sends messages. One of these methods ends it:
 *
 * - `finish`: the handler has finished. The queued messages and then the status are sent.
 * - `abort`: the client has cancelled, the connection is lost, or the agent stops. If the stream is still open, the
 *   queued messages and then the handler's status are sent.
 * - `failWithin1s`: the deadline has passed, or the call is evicted. Queued messages are dropped. If the client has not
 *   read the status within 1 s, the stream is reset.
 * - `failOnRead`: for example, a newer call attaches to the same kept command. Queued messages are dropped. The client
 *   gets the status when it reads. It may not be reading now.
 *
 * Each of these methods except `finish` aborts the handler's signal. "Dropped" does not include a message that is
 * already partly sent: the rest of it is sent, too.
 */
export class Call implements StreamConsumer {
  readonly metadata: RequestFields;
  /** Time at which the request's headers arrived. */
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
  #reject: (() => void) | undefined;
  #requestEndTimer: NodeJS.Timeout | undefined;
  /** This call's share of the limit `unreadAnswers`; undefined before `failOnRead()`. */
  #unreadAnswer: Share | undefined;

  constructor(stream: Http2Stream, setup: CallSetup) {
    this.metadata = setup.metadata;
    this.receivedAt = setup.receivedAt;
    this.connection = setup.connection;
    this.#stream = stream;
    this.#setup = setup;
    const { messageLimitBytes, spare, unread } = setup;
    const newShare = (): Share => unread.share(this.connection, (error) => this.failWithin1s(error));
    this.#request = new RequestMessages(stream, messageLimitBytes, spare, newShare);
    stream.consumer = this;
  }

  /**
   * Aborted when the client cancels, the deadline passes, the connection is lost or the server stops, but not when the
   * handler ends. The reason is an AgentError. Created on demand, because most handlers never use it.
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted !== undefined) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  /** Why the call was aborted; undefined if it was not aborted. */
  get aborted(): AgentError | undefined {
    return this.#aborted;
  }

  /** Bytes queued by `send` that the connection has not taken yet. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /**
   * Returns the request's messages in order. The iteration ends at the client's half-close. It throws AgentError for an
   * invalid message, and the signal's reason on abort.
   *
   * In addition to the flow-control window, the call buffers one message while the handler is reading, and about 80 KiB
   * while the handler is not reading.
   */
  messages(): RequestMessages {
    return this.#request;
  }

  /**
   * Decodes the only message of a request.
   *
   * - Message below LARGE_MESSAGE_BYTES: its byte fields are views of the message.
   * - Larger message: its byte fields are copied, and the message is released. Without the copies, even a short path
   *   would keep the whole message in memory until the call ends.
   *
   * @throws AgentError for malformed bytes, or for too many fields
   */
  decode<Desc extends DescMessage>(schema: Desc, message: BorrowedBytes): MessageShape<Desc> {
    const { bytes } = message;
    if (bytes.length < LARGE_MESSAGE_BYTES) return decodeMessage(schema, bytes);
    try {
      // `clone` copies byte fields with `slice`. A slice of a Uint8Array is a copy, but a slice of a Buffer is only a
      // view. So the message is decoded from a Uint8Array.
      const view = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      return clone(schema, decodeMessage(schema, view));
    } finally {
      // The received message may contain entropy, which must not stay in memory, so the message is overwritten.
      bytes.fill(0);
      message.release();
    }
  }

  /**
   * Queues one message without copying it. `release` runs once when the caller may reuse the memory, even if the call
   * has ended and nothing was sent. Throws AgentError for a message over the limit.
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

  /** Sends the only message of a response. Throws AgentError for a message over the limit. */
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
   * Starts the deadline. When it passes, the call is aborted and answered at once. Throws AgentError if the deadline
   * has already passed; the caller must then not start the call.
   */
  startDeadline(timeoutMs: number): void {
    if (timeoutMs < SHORTEST_DEADLINE_MS) throw deadlinePassed();
    // Node cannot set a timer for a time longer than TIMER_LIMIT_MS (24 days). A call with a longer timeout has no
    // deadline.
    if (timeoutMs > TIMER_LIMIT_MS) return;
    this.#deadline = setTimeout(() => {
      this.failWithin1s(deadlinePassed());
    }, timeoutMs);
  }

  /**
   * Discards the request's messages. Calls `refuse` when the request is complete or takes too long, or when the client
   * is gone. The call waits for the end of the request, because a response before that would require a stream reset.
   * Some clients report such a reset as a broken connection (curl: error 92).
   */
  whenRequestEnds(refuse: () => void): void {
    this.#reject = refuse;
    if (this.#stream.remoteEnded || this.#stream.closed) {
      this.#requestEnded();
      return;
    }
    this.#requestEndTimer = setTimeout(() => this.#requestEnded(), REQUEST_END_WAIT_MS);
    this.#requestEndTimer.unref();
    this.#request.discard();
  }

  /** Ends the call with this error. If the client does not read the error within a second, the stream is reset. */
  failWithin1s(error: AgentError): void {
    this.#fail(error);
    setTimeout(() => this.#stream.reset(ErrorCode.CANCEL), LINGER_MS).unref();
  }

  /**
   * Ends the call with this error and drops its unsent messages. The client gets the error when it reads, even if it is
   * not reading now.
   *
   * A message that is already partly sent is not dropped: it stays in memory until the client has read it. If the limit
   * `unreadAnswers` leaves no room for this message, the stream is reset.
   */
  failOnRead(error: AgentError): void {
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

  /**
   * Ends the response with a status after everything that was sent. Resets an incomplete request. Later calls do
   * nothing.
   */
  finish(error?: AgentError): void {
    this.#endResponse(error, false);
  }

  /**
   * Aborts the call with this error and drops its unsent messages, except a message that is partly sent. Returns how
   * much memory that message takes, or 0 if there is none.
   */
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
    const refuse = this.#reject;
    if (refuse === undefined) return;
    this.#reject = undefined;
    if (this.#requestEndTimer !== undefined) clearUnreferenced(this.#requestEndTimer);
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
