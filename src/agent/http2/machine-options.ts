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
  /** Called when the connection may have become idle: a stream has ended, or the peer has sent a GOAWAY. */
  maybeIdle(): void;
  /** Called when the peer violated the protocol or a limit. The GOAWAY is in the output; further input is ignored. */
  failed(error: ConnectionError): void;
}

/** Options of a state machine, which has no socket and no clock of its own. */
export interface MachineOptions {
  readonly limits: Http2Limits;
  readonly events: MachineEvents;
  /** A request header field with a secret value. The state machine keeps only a replacement of the value. */
  readonly secret?: SecretField | undefined;
  /** A monotonic clock in milliseconds. */
  readonly nowMs: () => number;
}
