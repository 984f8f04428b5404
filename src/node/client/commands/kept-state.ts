import type { Deferred } from "../deferred.ts";
import type { Channel } from "../grpc/channel.ts";
import type { KeptOptions } from "./keep.ts";
import type { ExecCall, Frame } from "./wire.ts";

/** What a KeptCall requires: the first frame, the options, and the channels for its calls. */
export interface KeptParts {
  readonly name: string;
  readonly first: Extract<Frame, { readonly case: "start" | "attach" }>;
  readonly options: KeptOptions;
  readonly channel: Channel;
  /** Creates a channel to the agent. The caller closes it. */
  readonly dial: () => Promise<Channel>;
  /**
   * Whether each attempt to reconnect creates a new channel, because the credentials may have changed. If false, the
   * existing channel reconnects by itself.
   */
  readonly alwaysDials: boolean;
}

/**
 * State of the successive calls of one kept command. From every state, the next state can be "over".
 *
 *     starting ──► attached ──► exited ──► over
 *                   │    ▲
 *       connection  ▼    │  agent has answered
 *       lost      reconnecting
 */
export type KeptState =
  /** The agent has not answered the first call yet. */
  | { readonly kind: "starting"; readonly call: ExecCall }
  /** The agent has answered this call: frames can be sent. */
  | { readonly kind: "attached"; readonly call: ExecCall }
  /**
   * The connection is lost. `call` is the call of the attempt in progress; undefined during the pause between two
   * attempts.
   */
  | { readonly kind: "reconnecting"; readonly call?: ExecCall; readonly answer?: Deferred<undefined> }
  /** The client has received the exit frame; the agent is about to end the call. */
  | { readonly kind: "exited"; readonly call: ExecCall }
  /** The call has ended, and the listener has been notified of that. */
  | { readonly kind: "over"; readonly call?: undefined };
