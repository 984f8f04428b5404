import { channel } from "node:diagnostics_channel";

/** An event of a client's connection, or of an attempt to connect. */
export type ConnectionEvent =
  | { readonly event: "connecting" }
  /** `address` is present for a client with several addresses or a vsock address. */
  | { readonly event: "connected"; readonly address?: string }
  | { readonly event: "failed"; readonly address?: string; readonly reason?: string }
  | { readonly event: "retrying"; readonly pauseMs: number; readonly reason: string };

/** Name of the channel of node:diagnostics_channel on which all clients of this process publish their events. */
export const CONNECTION_CHANNEL = "guest-agent-client";

const connections = channel(CONNECTION_CHANNEL);

/** Publishes an event. Does nothing without a subscriber. */
export function publish(event: ConnectionEvent): void {
  if (connections.hasSubscribers) connections.publish(event);
}
