import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { constants } from "node:http2";
import { AgentError } from "../domain/index.ts";
import type { Frame } from "./codec.ts";
import type { Instant, PeerInfo, RawCall, Session } from "./context.ts";
import { messageTooLarge, PREFIX_BYTES } from "./framing.ts";
import { RequestMessages } from "./request-messages.ts";
import { resetWhenFlushed } from "./reset.ts";
import { errorFields, OK_FIELDS, type StatusFields } from "./status.ts";
import { respondBeforeTrailers, sendTrailers } from "./trailers.ts";

/** Queued bytes below which more may be sent. One file chunk is on its way while the next is read. */
const LOW_WATER_BYTES = 256 * 1024;
/** How long the status of a call past its deadline may wait behind data that the client does not read. */
const LINGER_MS = 1_000;
/** Longest delay that a timer takes: 24.8 days. A later deadline is as good as none. */
const TIMER_LIMIT_MS = 2 ** 31 - 1;

/** What a call is made of beside its stream. */
export interface CallSetup {
  readonly metadata: IncomingHttpHeaders;
  readonly receivedAt: Instant;
  readonly session: Session;
  readonly responseHeaders: OutgoingHttpHeaders;
  readonly messageLimitBytes: number;
}

/** One call on one HTTP/2 stream, from its headers to its trailers. */
export class Call implements RawCall {
  readonly metadata: IncomingHttpHeaders;
  readonly receivedAt: Instant;
  readonly session: Session;
  readonly #stream: ServerHttp2Stream;
  readonly #setup: CallSetup;
  readonly #request: RequestMessages;
  #queuedBytes = 0;
  #waiters: (() => void)[] = [];
  readonly #unwritten = new Set<() => void>();
  #deadline: NodeJS.Timeout | undefined;
  #aborted: AgentError | undefined;
  #controller: AbortController | undefined;
  #status: StatusFields | undefined;

  constructor(stream: ServerHttp2Stream, setup: CallSetup) {
    this.metadata = setup.metadata;
    this.receivedAt = setup.receivedAt;
    this.session = setup.session;
    this.#stream = stream;
    this.#setup = setup;
    this.#request = new RequestMessages(stream, setup.messageLimitBytes, setup.session.onLargeRequest);
    stream.once("close", this.#onClose);
    stream.once("wantTrailers", this.#onWantTrailers);
  }

  get peer(): PeerInfo {
    return this.session.peer;
  }

  /** Made on demand: most calls never look at it. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#aborted !== undefined) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  /** Why the call is over for its handler; undefined while it is not. */
  get aborted(): AgentError | undefined {
    return this.#aborted;
  }

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  messages(): AsyncIterable<Uint8Array> {
    return this.#request;
  }

  recycle(message: Uint8Array): void {
    this.#request.recycle(message);
  }

  send(frame: Frame, done?: () => void): void {
    let sizeBytes = 0;
    for (const part of frame) sizeBytes += part.length;
    const limitBytes = this.#setup.messageLimitBytes;
    if (sizeBytes - PREFIX_BYTES > limitBytes) throw messageTooLarge(sizeBytes - PREFIX_BYTES, limitBytes);
    if (!this.#open) {
      done?.();
      return;
    }
    if (!this.#stream.headersSent) this.#respond();
    this.#queuedBytes += sizeBytes;
    const written = (): void => {
      if (!this.#unwritten.delete(written)) return;
      this.#queuedBytes -= sizeBytes;
      done?.();
      if (this.#queuedBytes < LOW_WATER_BYTES) this.#releaseWaiters();
    };
    this.#unwritten.add(written);
    const last = frame.length - 1;
    this.#stream.cork();
    for (const [index, part] of frame.entries()) this.#stream.write(part, index === last ? written : undefined);
    this.#stream.uncork();
  }

  drained(): Promise<void> {
    if (this.#queuedBytes < LOW_WATER_BYTES || !this.#open) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiters.push(resolve);
    });
  }

  /** Starts the deadline, counted from now. When it passes the call is aborted and answered at once. */
  startDeadline(timeoutMs: number): void {
    if (timeoutMs > TIMER_LIMIT_MS) return;
    this.#deadline = setTimeout(() => {
      const error = new AgentError("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "the call's deadline has passed");
      this.abort(error);
      this.finish(error);
      setTimeout(() => this.#stream.close(constants.NGHTTP2_CANCEL), LINGER_MS).unref();
    }, timeoutMs);
  }

  /** Tells the handler that its call is over. Later calls do nothing. */
  abort(reason: AgentError): void {
    if (this.#aborted !== undefined) return;
    this.#aborted = reason;
    this.#request.fail(reason);
    this.#releaseWaiters();
    this.#controller?.abort(reason);
  }

  /** Ends the response with a status, after all that has been sent. Later calls do nothing. */
  finish(error?: AgentError): void {
    if (this.#status !== undefined) return;
    this.#status = error === undefined ? OK_FIELDS : errorFields(error);
    clearTimeout(this.#deadline);
    this.#releaseWaiters();
    const stream = this.#stream;
    if (stream.destroyed || stream.closed) return;
    if (stream.headersSent) stream.end();
    else stream.respond({ ...this.#setup.responseHeaders, ...this.#status }, { endStream: true });
    if (this.#request.complete) return;
    this.#request.discard();
    resetWhenFlushed(stream);
  }

  get #open(): boolean {
    return this.#status === undefined && !this.#stream.destroyed && !this.#stream.closed;
  }

  #respond(): void {
    respondBeforeTrailers(this.#stream, this.#setup.responseHeaders);
  }

  readonly #onWantTrailers = (): void => {
    sendTrailers(this.#stream, this.#status ?? OK_FIELDS);
  };

  readonly #onClose = (): void => {
    clearTimeout(this.#deadline);
    if (this.#status === undefined) {
      const cancelled = this.#stream.rstCode === constants.NGHTTP2_CANCEL;
      const problem = cancelled ? "the client cancelled the call" : "the connection was lost";
      this.abort(new AgentError("CANCELLED", "CANCELLED", problem));
    }
    this.#releaseWaiters();
    for (const written of this.#unwritten) written();
  };

  #releaseWaiters(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const resolve of waiters) resolve();
  }
}
