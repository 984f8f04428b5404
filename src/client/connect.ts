import { createSecureContext } from "node:tls";
import { ChannelCredentials, type ChannelOptions, Client } from "@grpc/grpc-js";
import { Channel } from "./channel.ts";
import { GuestClient } from "./guest-client.ts";

/** Where an agent is and how to be let in. */
export interface ConnectOptions {
  /** `host:port`, with an IPv6 address in brackets. */
  readonly address: string;
  /** The authority that issued the agent's certificate. */
  readonly caPem: string | Uint8Array;
  readonly certPem: string | Uint8Array;
  readonly keyPem: string | Uint8Array;
  /** The instance token. */
  readonly token: string;
  /** The name that the agent's certificate must have, whatever the address. */
  readonly serverName?: string | undefined;
}

/** The name in the certificates that `guestctl issue` makes. */
export const DEFAULT_SERVER_NAME = "guest-agent";

/**
 * Bytes that a call may receive ahead of its reader. Larger than what grpc-js starts with (64 KiB halves the
 * throughput), small enough for a client of hundreds of agents.
 */
const FLOW_CONTROL_WINDOW_BYTES = 1024 * 1024;

const OPTIONS: ChannelOptions = {
  "grpc-node.flow_control_window": FLOW_CONTROL_WINDOW_BYTES,
  // The agent is dialled directly, whatever http_proxy says.
  "grpc.enable_http_proxy": 0,
  // A retried call could run a command twice.
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

/** Makes a client of an agent's TCP listener over mutual TLS. Connects with the first call. */
export function connect(options: ConnectOptions): GuestClient {
  const context = createSecureContext({
    ca: pem(options.caPem),
    cert: pem(options.certPem),
    key: pem(options.keyPem),
    minVersion: "TLSv1.3",
  });
  const serverName = options.serverName ?? DEFAULT_SERVER_NAME;
  const client = new Client(options.address, ChannelCredentials.createFromSecureContext(context), {
    ...OPTIONS,
    "grpc.ssl_target_name_override": serverName,
    "grpc.default_authority": serverName,
  });
  return new GuestClient(new Channel(client, options.token));
}

function pem(value: string | Uint8Array): string | Buffer {
  return typeof value === "string" ? value : Buffer.from(value);
}
