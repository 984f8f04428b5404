import type { AgentError } from "../domain/index.ts";
import type { RequestFields } from "../http2/index.ts";
import type { Frame } from "./codec.ts";

/** One moment on both clocks of the Clock port. */
export interface Instant {
  /** Nanoseconds since 1970. */
  readonly wallNs: bigint;
  /** Milliseconds of the clock that is never stepped. */
  readonly monotonicMs: number;
}

/** What a verified client certificate says. */
export interface PeerCertificate {
  /** Distinguished name, as Node prints it. */
  readonly subject: string;
  /** SHA-256 fingerprint, hex with colons. */
  readonly fingerprint256: string;
  /** Start of its validity, milliseconds since 1970. */
  readonly notBeforeMs: number;
  /** End of its validity or of its issuers', whichever is first, milliseconds since 1970. */
  readonly notAfterMs: number;
  /** The certificate and its issuers as far as they are known, DER. */
  readonly chain: readonly Buffer[];
}

/** Who is at the other end of a connection. */
export interface PeerInfo {
  /** `address:port`, or "unix". */
  readonly address: string;
  /** Undefined on a connection without TLS. */
  readonly certificate: PeerCertificate | undefined;
}

/** A connection. The object itself is its identity. */
export interface Session {
  /** Number of the connection in this process, from 1. For logs. */
  readonly id: number;
  readonly openedAt: Instant;
  readonly peer: PeerInfo;
}

/** What a handler knows about its call. */
export interface CallContext {
  /**
   * Aborted when the client cancels, the deadline passes, the connection is lost or the server ends; the reason is an
   * AgentError. Never aborted by the handler's own end.
   */
  readonly signal: AbortSignal;
  readonly metadata: RequestFields;
  /** When the call's headers arrived. */
  readonly receivedAt: Instant;
  readonly peer: PeerInfo;
  readonly session: Session;
}

/** A call whose messages the handler reads and writes itself. */
export interface RawCall extends CallContext {
  /**
   * The request messages in order, without their prefix; to be iterated once. Reading is backpressured: beside the call's
   * flow-control window about 80 KiB are held for a handler that does not ask for the next, and one whole message for one
   * that does. Ends at the client's half-close. Throws AgentError at a message that is refused, and the signal's reason on
   * abort. Leaving the loop early discards the rest of the request.
   */
  messages(): AsyncIterable<Uint8Array>;
  /** Says that nobody looks at a request message, or a view of it, any more: its memory is used for another one. */
  recycle(message: Uint8Array): void;
  /**
   * Queues one message. Its parts are not copied. `done` runs once, when the bytes are out of our hands and may be
   * changed: also when the call has ended and nothing was sent. Throws AgentError for a message over the limit.
   */
  send(frame: Frame, done?: () => void): void;
  /** Bytes queued by `send` that the connection has not yet taken. */
  readonly queuedBytes: number;
  /**
   * Ends the call with this error whether its client reads or not: what it has not taken a second later, the status
   * included, is thrown away.
   */
  giveUp(error: AgentError): void;
  /** Resolves when `queuedBytes` is low enough to send more, or when the call has ended. Never rejects. */
  drained(): Promise<void>;
}

/** Decides whether a call may go on, before its handler runs and before anything of its body is read. */
export type Interceptor = (metadata: RequestFields) => AgentError | undefined | Promise<AgentError | undefined>;
