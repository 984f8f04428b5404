import type { SecretField } from "./hpack.ts";
import type { Http2Limits } from "./limits.ts";
import type { ConnectionError } from "./protocol.ts";
import type { RequestFields } from "./request-fields.ts";
import type { Http2Stream } from "./stream.ts";

/** Callbacks to a machine's owner. */
export interface MachineEvents {
  /** A request has begun. Its stream needs a consumer before this returns. */
  request(stream: Http2Stream, fields: RequestFields): void;
  /** `take` has output. Called at least once between two calls of `take` if there is any. */
  output(): void;
  /** A stream has ended, or the peer announced that it sends no more requests. */
  quieter(): void;
  /** The peer broke the protocol or a limit. Take and write the GOAWAY; further input is ignored. */
  failed(error: ConnectionError): void;
}

/** Options of a machine. */
export interface MachineOptions {
  readonly limits: Http2Limits;
  readonly events: MachineEvents;
  /** A field of requests whose value is secret and not kept. */
  readonly secret?: SecretField | undefined;
  /** Milliseconds of a clock that is never stepped. */
  readonly nowMs: () => number;
}
