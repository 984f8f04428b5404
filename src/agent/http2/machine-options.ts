import type { SecretField } from "./hpack.ts";
import type { Http2Limits } from "./limits.ts";
import type { ConnectionError } from "./protocol.ts";
import type { RequestFields } from "./request-fields.ts";
import type { Http2Stream } from "./stream.ts";

/** What the HTTP/2 state machine reports to its owner. */
export interface MachineEvents {
  /** Called for a new request. Set the consumer of its stream before this returns. */
  request(stream: Http2Stream, fields: RequestFields): void;
  /**
   * Called when output was added. The owner then calls `take()` to get the output. May be called several times before
   * `take()`.
   */
  output(): void;
  /**
   * Called when a stream has ended, or when the peer announced that it sends no more requests. The connection may be
   * idle now.
   */
  maybeIdle(): void;
  /** Called when the peer violated the protocol or a limit. The output contains the GOAWAY; further input is ignored. */
  failed(error: ConnectionError): void;
}

/** Options of a state machine, which has no socket and no clock of its own. */
export interface MachineOptions {
  readonly limits: Http2Limits;
  readonly events: MachineEvents;
  /** A request header field whose value is secret. The state machine keeps only a replacement of it, such as a digest. */
  readonly secret?: SecretField | undefined;
  /** A monotonic clock in milliseconds. */
  readonly nowMs: () => number;
}
