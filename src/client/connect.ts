import { type ChannelOptions, Client } from "@grpc/grpc-js";
import { fromArguments, tokenOf } from "./arguments.ts";
import { Channel } from "./channel.ts";
import { GuestClient } from "./guest-client.ts";
import type { ConnectOptions } from "./link/link.ts";
import { linkOf } from "./link/open.ts";

/**
 * Bytes that a call may receive ahead of its reader. grpc-js's default of 64 KiB halves the throughput; this is still
 * small enough for a client of hundreds of agents.
 */
const FLOW_CONTROL_WINDOW_BYTES = 1024 * 1024;

const OPTIONS: ChannelOptions = {
  "grpc-node.flow_control_window": FLOW_CONTROL_WINDOW_BYTES,
  // The agent is dialled directly, whatever http_proxy says.
  "grpc.enable_http_proxy": 0,
  // A retry could run a command twice. Channel itself repeats the calls that may be repeated.
  "grpc.enable_retries": 0,
  // Instances may reuse an address, but never credentials: do not share connections by address.
  "grpc.use_local_subchannel_pool": 1,
  "grpc.service_config_disable_resolution": 1,
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // A sandbox boots in tens of milliseconds: the default pause of a second would be most of the wait.
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
