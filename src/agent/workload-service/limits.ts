import { CONNECTION_LIMIT, HANDSHAKE_TIMEOUT_MS } from "../domain/index.ts";

/** Largest message accepted. All valid messages of the service are much smaller. */
export const MESSAGE_LIMIT_BYTES: number = 64 * 1024;

/** Limits of the workload's listener, whose clients are untrusted. */
export interface WorkloadLimits {
  readonly connections: number;
  /**
   * Longest time from the beginning of the connection until its first bytes show the version of HTTP. With HTTP/2, also
   * the longest time from then to the headers of the first request.
   */
  readonly headersTimeoutMs: number;
  /**
   * Longest time from a request's headers (with HTTP/1, from the beginning of the connection) to the end of its
   * response.
   */
  readonly requestTimeoutMs: number;
  /** Time without any traffic after which a connection is closed. */
  readonly idleTimeoutMs: number;
  /** Age at which an HTTP/2 connection accepts no more requests. */
  readonly connectionAgeMs: number;
}

export const DEFAULT_WORKLOAD_LIMITS: WorkloadLimits = {
  connections: CONNECTION_LIMIT,
  headersTimeoutMs: HANDSHAKE_TIMEOUT_MS,
  requestTimeoutMs: 10_000,
  idleTimeoutMs: 60_000,
  connectionAgeMs: 600_000,
};
