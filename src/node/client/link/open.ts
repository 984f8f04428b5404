import { createSecureContext } from "node:tls";
import { ChannelCredentials, type ChannelOptions, Client, type ClientOptions, credentials } from "@grpc/grpc-js";
import { LAST_PORT } from "../../../shared/ports.ts";
import { reservedTransport } from "../../../shared/transports.ts";
import { tokenOf, wholeMilliseconds } from "../arguments.ts";
import { Channel } from "../channel.ts";
import { invalidOption } from "../errors.ts";
import { acceptingExpired, tellingSockets } from "../internals/grpc-js.ts";
import { BridgeLink } from "./bridge.ts";
import { explain } from "./explain.ts";
import { type ConnectOptions, DEFAULT_SERVER_NAME, type Link, type TcpOptions } from "./link.ts";
import { Liveness } from "./liveness.ts";
import { readToTheEnd } from "./single-answer.ts";

/** Bytes that a call may receive ahead of its reader: grpc-js's default of 64 KiB halves the throughput. */
const FLOW_CONTROL_WINDOW_BYTES = 1024 * 1024;

/** Over the network a handshake takes a second at worst, and a bridge command may have to start a program. */
const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;

const OPTIONS: ChannelOptions = {
  "grpc-node.flow_control_window": FLOW_CONTROL_WINDOW_BYTES,
  // The agent is dialled directly, whatever http_proxy says.
  "grpc.enable_http_proxy": 0,
  // A retry could run a command twice. Channel itself repeats the calls that may be repeated.
  "grpc.enable_retries": 0,
  // Instances may reuse an address, but never credentials: do not share connections by address.
  "grpc.use_local_subchannel_pool": 1,
  "grpc.service_config_disable_resolution": 1,
  // A sandbox boots in tens of milliseconds; the default pause of a second would be most of the wait.
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 2_000,
};

/**
 * A channel that connects with its first call. Throws where the options are not valid.
 *
 * @param more what else grpc-js has to know
 */
export function openChannel(options: ConnectOptions, more: ClientOptions = {}): Channel {
  const token = tokenOf(options.token);
  const { connectTimeoutMs: limitMs = DEFAULT_CONNECT_TIMEOUT_MS } = options;
  const connectTimeoutMs =
    limitMs === Number.POSITIVE_INFINITY ? limitMs : wholeMilliseconds(limitMs, "connectTimeoutMs");
  const link = linkOf(options);
  const client = new Client(
    link.target,
    tellingSockets(link.credentials, (socket) => liveness.limit(socket)),
    {
      ...OPTIONS,
      ...link.options,
      ...more,
      interceptors: [readToTheEnd, ...(more.interceptors ?? [])],
    },
  );
  const liveness = new Liveness(client, connectTimeoutMs);
  return new Channel(client, link, liveness, token);
}

/** `unix:/path` or `unix:///path`, as in gRPC. Not `unix://name/path`: grpc-js would ignore the name silently. */
const UNIX_ADDRESS = /^unix:(?:\/\/)?(\/[^/].*)$/s;

/** The link that the options describe. Throws GuestError where they are not valid. */
function linkOf(options: ConnectOptions): Link {
  if ("bridge" in options) return new BridgeLink(options);
  // Programs without types may pass anything.
  const { address }: { readonly address?: unknown } = options;
  if (typeof address !== "string" || address === "") {
    throw invalidOption("address", "address is missing; give host:port or unix:/path, or a bridge command as bridge");
  }
  const reserved = reservedTransport(options.address);
  if (reserved !== undefined)
    throw invalidOption("address", `the address ${reserved}; use host:port, unix:/path or a bridge command`);
  const socketPath = UNIX_ADDRESS.exec(options.address)?.[1];
  if (socketPath !== undefined) {
    const place = { address: options.address, to: { path: socketPath } };
    return {
      target: `unix:${socketPath}`,
      credentials: credentials.createInsecure(),
      options: {},
      explain: (limitMs) => explain(place, limitMs),
    };
  }
  if ("caPem" in options) return tcpLink(options);
  throw invalidOption(
    "address",
    `"${options.address}" is not unix:/path; an address of host:port needs caPem, certPem and keyPem`,
  );
}

const ADDRESS = /^(?:\[[\da-fA-F:.]+(?:%[\w.-]+)?\]|[^:/[\]\s]+):\d{1,5}$/;

/** Mutual TLS 1.3 to a host and port. Throws GuestError for a malformed address or PEM. */
function tcpLink(options: TcpOptions): Link {
  const { address, serverName = DEFAULT_SERVER_NAME } = options;
  const port = Number(address.slice(address.lastIndexOf(":") + 1));
  if (!ADDRESS.test(address) || port < 1 || port > LAST_PORT) {
    throw invalidOption(
      "address",
      `"${address}" is no address; write host:port with a port from 1 to ${LAST_PORT} and an IPv6 address in brackets, or unix:/path`,
    );
  }
  const context = secureContext(options);
  const host = address.slice(0, address.lastIndexOf(":")).replace(/^\[(.*)\]$/, "$1");
  const place = { address, to: { host, port }, tls: { context, serverName } };
  return {
    target: address,
    credentials:
      options.pinnedCertPem === undefined
        ? ChannelCredentials.createFromSecureContext(context)
        : acceptingExpired(context, pem(options.pinnedCertPem, "pinnedCertPem")),
    options: { "grpc.ssl_target_name_override": serverName, "grpc.default_authority": serverName },
    explain: (limitMs) => explain(place, limitMs),
  };
}

function secureContext({ caPem, certPem, keyPem }: TcpOptions): ReturnType<typeof createSecureContext> {
  const [ca, cert, key] = [pem(caPem, "caPem"), pem(certPem, "certPem"), pem(keyPem, "keyPem")];
  try {
    return createSecureContext({ ca, cert, key, minVersion: "TLSv1.3" });
  } catch (cause) {
    throw invalidOption(
      "keyPem",
      "caPem, certPem or keyPem cannot be read, or the key is not that of the certificate",
      cause,
    );
  }
}

/** Refuses an empty text: Node would connect without the credential. */
function pem(value: string | Uint8Array, name: string): Buffer {
  const isGiven = typeof value === "string" || value instanceof Uint8Array;
  const bytes = isGiven ? Buffer.from(value) : Buffer.alloc(0);
  if (bytes.includes("-----BEGIN ")) return bytes;
  throw invalidOption(name, `${name} holds no PEM`);
}
