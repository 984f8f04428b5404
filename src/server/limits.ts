import { CONNECTION_LIMIT, EXEC_LIMIT, HANDSHAKE_TIMEOUT_MS } from "../domain/index.ts";

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
  /** Calls at once on a connection. */
  readonly streamsPerConnection: number;
  /** Flow-control window of a call: what a client may send that nobody has read. For a connection's first large request. */
  readonly streamWindowBytes: number;
  /** The window of a call while few requests of its connection are large. */
  readonly largestStreamWindowBytes: number;
  /** The window of a call while many of them are. */
  readonly smallestStreamWindowBytes: number;
  /** What the windows of a connection's large requests may come to together, unless each has the smallest. */
  readonly sharedWindowBytes: number;
  /** Flow-control window of a connection. */
  readonly connectionWindowBytes: number;
}

/** Every exec that may run at once on one connection, and room for other calls beside them. */
const CALLS_BESIDE_EXECS = 64;

/** The bounds unless told otherwise. */
export const DEFAULT_SERVER_LIMITS: ServerLimits = {
  connections: CONNECTION_LIMIT,
  handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS,
  pingIntervalMs: 30_000,
  pingTimeoutMs: 10_000,
  streamsPerConnection: EXEC_LIMIT + CALLS_BESIDE_EXECS,
  streamWindowBytes: 256 * 1024,
  largestStreamWindowBytes: 1024 * 1024,
  smallestStreamWindowBytes: 32 * 1024,
  sharedWindowBytes: 2 * 1024 * 1024,
  connectionWindowBytes: 4 * 1024 * 1024,
};
