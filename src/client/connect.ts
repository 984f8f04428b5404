import { type ChannelOptions, Client } from "@grpc/grpc-js";
import { fromArguments, tokenOf } from "./arguments.ts";
import { Channel } from "./channel.ts";
import { GuestClient } from "./guest-client.ts";
import type { ConnectOptions } from "./link/link.ts";
import { linkOf } from "./link/open.ts";

/**
 * Bytes that a call may receive ahead of its reader. Larger than what grpc-js starts with (64 KiB halves the
 * throughput), small enough for a client of hundreds of agents.
 */
const FLOW_CONTROL_WINDOW_BYTES = 1024 * 1024;

const OPTIONS: ChannelOptions = {
  "grpc-node.flow_control_window": FLOW_CONTROL_WINDOW_BYTES,
  // The agent is dialled directly, whatever http_proxy says.
  "grpc.enable_http_proxy": 0,
  // A retried call could run a command twice. What may be repeated, Channel repeats.
  "grpc.enable_retries": 0,
  // Two instances may have the same address one after the other, never the same credentials.
  "grpc.use_local_subchannel_pool": 1,
  "grpc.service_config_disable_resolution": 1,
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // A sandbox boots in tens of milliseconds: the usual second between two attempts would be most of the wait.
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 2_000,
};

/**
 * Makes a client of an agent: over TCP with mutual TLS, a unix socket, or a bridge command. Connects with the first
 * call. Throws GuestError (INVALID_ARGUMENT) where the options are not valid.
 */
export function connect(options: ConnectOptions): GuestClient {
  return fromArguments("the options of connect are not valid", () => {
    return new GuestClient((other = options) => openChannel(other));
  });
}

function openChannel(options: ConnectOptions): Channel {
  const token = tokenOf(options.token);
  const link = linkOf(options);
  return new Channel(new Client(link.target, link.credentials, { ...OPTIONS, ...link.options }), link, token);
}
