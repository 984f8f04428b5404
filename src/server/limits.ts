import { CONNECTION_LIMIT, HANDSHAKE_TIMEOUT_MS } from "../domain/index.ts";
import type { Http2Limits } from "../http2/index.ts";

/** Bounds of a listener. */
export interface ServerLimits {
  /** Connections at once, half-open ones included. */
  readonly connections: number;
  /** Time for the TLS handshake, and again for the first request's headers. */
  readonly handshakeTimeoutMs: number;
  /** Pause between two PINGs to a peer. */
  readonly pingIntervalMs: number;
  /** Time for the answer to a PING; a peer that has not answered by then is dead. */
  readonly pingTimeoutMs: number;
  /** Bounds of HTTP/2 that differ from the usual ones. */
  readonly http2?: Partial<Http2Limits>;
}

/** The bounds unless told otherwise. */
export const DEFAULT_SERVER_LIMITS: ServerLimits = {
  connections: CONNECTION_LIMIT,
  handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS,
  pingIntervalMs: 30_000,
  pingTimeoutMs: 10_000,
};
