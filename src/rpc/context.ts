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

/** A verified client certificate. */
export interface PeerCertificate {
  /** Distinguished name, as Node prints it. */
  readonly subject: string;
  /** SHA-256 fingerprint, hex with colons. */
  readonly fingerprint256: string;
  /** Start of its validity, milliseconds since 1970. */
  readonly notBeforeMs: number;
  /** End of its validity or of its issuers', whichever is first, milliseconds since 1970. */
  readonly notAfterMs: number;
  /** The certificate and its known issuers, DER. */
  readonly chain: readonly Buffer[];
}

/** The peer of a connection. */
export interface PeerInfo {
  /** `address:port`, or "unix". */
  readonly address: string;
  /** Undefined on a connection without TLS. */
  readonly certificate: PeerCertificate | undefined;
}

/** A connection, identified by the object itself. */
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
   * AgentError. Never aborted because the handler has ended.
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
   * The request messages in order, without their prefix. Iterate it once. With backpressure: beside the call's
   * flow-control window, it holds about 80 KiB while the handler does not ask for the next message, and one whole message
   * while it does. Ends at the client's half-close. Throws AgentError at a refused message, and the signal's reason on
   * abort. Leaving the loop early discards the rest of the request.
   */
  messages(): AsyncIterable<Uint8Array>;
  /** Returns the memory of a request message that nothing uses any more; another message will reuse it. */
  recycle(message: Uint8Array): void;
  /**
   * Queues one message without copying its parts. `done` runs once when the caller may change the bytes, also if the call
   * has ended and nothing was sent. Throws AgentError for a message over the limit.
   */
  send(frame: Frame, done?: () => void): void;
  /** Bytes queued by `send` that the connection has not yet taken. */
  readonly queuedBytes: number;
  /**
   * Ends the call with this error, even if its client does not read: what it has not taken a second later is dropped,
   * also the status.
   */
  giveUp(error: AgentError): void;
  /** Resolves when `queuedBytes` is low enough to send more, or when the call has ended. Never rejects. */
  drained(): Promise<void>;
}

/** Admits a call (undefined) or refuses it, before its handler runs and before any of its body is read. */
export type Interceptor = (metadata: RequestFields) => AgentError | undefined | Promise<AgentError | undefined>;
