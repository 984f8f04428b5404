import { channel } from "node:diagnostics_channel";

/**
 * An event of a client's connection, or of an attempt to connect.
 *
 * "disconnected": an established connection has ended, even if the client has no call in progress, or the agent has
 * begun to close the connection. The client connects again at its next call. A connection whose peer disappears without
 * closing it, for example because the host of the sandbox loses power, is noticed only while there are calls, within 20
 * s. A program that must notice this loss too can keep a `watchUsage` open, or call `health` at intervals. Closing the
 * client has no event.
 */
export type ConnectionEvent =
  | (OfClient & { readonly event: "connecting" | "disconnected" })
  /**
   * `address` is the address that was dialled. It is present only for a client with several addresses or a vsock
   * address.
   */
  | (OfClient & { readonly event: "connected"; readonly address?: string })
  | (OfClient & { readonly event: "failed"; readonly address?: string; readonly reason?: string })
  /**
   * A call will be repeated after `pauseMs`. `target` is absent during a restore, because each attempt may then use a
   * new client.
   */
  | (Partial<OfClient> & { readonly event: "retrying"; readonly pauseMs: number; readonly reason: string });

/** Which client an event is about. */
interface OfClient {
  /**
   * The address of the client, as it was given to `connect`. Several addresses are separated by commas. For a client
   * with a bridge, it is the program of the bridge command.
   */
  readonly target: string;
}

/** Name of the channel of node:diagnostics_channel on which all clients of this process publish their events. */
export const CONNECTION_CHANNEL = "guest-agent-client";

const connections = channel(CONNECTION_CHANNEL);

/** Publishes an event. Does nothing without a subscriber. */
export function publish(event: ConnectionEvent): void {
  if (connections.hasSubscribers) connections.publish(event);
}
