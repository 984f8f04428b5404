import { createSecureContext, type SecureContext } from "node:tls";
import { ChannelCredentials, type ChannelOptions, Client, type ClientOptions, credentials } from "@grpc/grpc-js";
import { LAST_PORT, LAST_VSOCK_PORT } from "../../../../shared/ports.ts";
import { reservedTransport } from "../../../../shared/transports.ts";
import { tokenOf, wholeMilliseconds } from "../../arguments.ts";
import { Channel } from "../channel.ts";
import { failure, type GuestError, invalidOption } from "../../errors/errors.ts";
import { TimeLimit } from "../../time-limit.ts";
import { acceptingExpired, freeContext, reportingSockets } from "../internals/grpc-js.ts";
import { BridgeLink } from "./bridge.ts";
import { DialledLink } from "./dialled.ts";
import type { DirectEndpoint, Endpoint } from "./endpoint.ts";
import { explain } from "./explain.ts";
import { type ConnectOptions, DEFAULT_SERVER_NAME, type Link, type TcpOptions } from "./link.ts";
import { Liveness } from "./liveness.ts";
import { readToTheEnd } from "./single-answer.ts";
import { targetOf } from "./zoned-address.ts";

/**
 * How many bytes a call may receive before its reader has read them. With grpc-js's default of 64 KiB, the throughput
 * is only half as high.
 */
const FLOW_CONTROL_WINDOW_BYTES = 1024 * 1024;

/**
 * Default time limit for making a connection. A handshake over a network takes at most about a second, but a bridge
 * command may first have to start a program.
 */
const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;

const OPTIONS: ChannelOptions = {
  "grpc-node.flow_control_window": FLOW_CONTROL_WINDOW_BYTES,
  // Dial the agent directly, and ignore the variable http_proxy.
  "grpc.enable_http_proxy": 0,
  // Do not let grpc-js retry, because it could run a command twice. The class Channel repeats the calls that are safe
  // to repeat.
  "grpc.enable_retries": 0,
  // Do not let clients with the same address share a connection. A new instance may have the address of an old one, but
  // it has different credentials.
  "grpc.use_local_subchannel_pool": 1,
  "grpc.service_config_disable_resolution": 1,
  // By default, grpc-js waits a second before it tries to connect again. A sandbox boots in tens of milliseconds, so a
  // client would spend most of the time waiting.
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 2_000,
};

/**
 * Creates a channel with the options that the caller's function returns, or with `own` if there is no such function.
 * Rejects with DIAL_TIMED_OUT if the function has returned no options within `own.connectTimeoutMs`.
 */
export async function openCurrent(
  connectOptions: (() => ConnectOptions | Promise<ConnectOptions>) | undefined,
  own: ConnectOptions,
): Promise<Channel> {
  if (connectOptions === undefined) return openChannel(own);
  const { connectTimeoutMs: limitMs = DEFAULT_CONNECT_TIMEOUT_MS } = own;
  const late = (): GuestError =>
    failure(
      "UNAVAILABLE",
      "DIAL_TIMED_OUT",
      `the function connectOptions has not returned the connection options within ${limitMs} ms`,
    );
  const current = new TimeLimit(limitMs).within(Promise.resolve(connectOptions()), late);
  return openChannel((await current) ?? own);
}

/**
 * Creates a channel that connects at its first call. Throws if the options are invalid.
 *
 * @param more further options for grpc-js
 */
export function openChannel(options: ConnectOptions, more: ClientOptions = {}): Channel {
  const token = tokenOf(options.token);
  const { connectTimeoutMs: limitMs = DEFAULT_CONNECT_TIMEOUT_MS } = options;
  const connectTimeoutMs =
    limitMs === Number.POSITIVE_INFINITY ? limitMs : wholeMilliseconds(limitMs, "connectTimeoutMs");
  const link = linkOf(options, connectTimeoutMs);
  const client = new Client(
    link.target,
    reportingSockets(link.credentials, (socket) => liveness.limit(socket)),
    {
      ...OPTIONS,
      ...link.options,
      ...more,
      interceptors: [readToTheEnd, ...(more.interceptors ?? [])],
    },
  );
  const liveness = new Liveness(client, connectTimeoutMs, targetName(options));
  return new Channel(client, link, liveness, token);
}

/**
 * Returns the text that stands for the agent in connection events: the client's addresses, or the program of its bridge
 * command. Leaves out the arguments of the bridge command, because they may be secret.
 */
function targetName(options: ConnectOptions): string {
  if ("bridge" in options) return options.bridge[0] ?? "";
  return typeof options.address === "string" ? options.address : options.address.join(",");
}

/**
 * Matches `unix:/path` and `unix:///path`, as in gRPC. Rejects `unix://name/path`, because grpc-js would silently
 * ignore the name.
 */
const UNIX_ADDRESS = /^unix:(?:\/\/)?(\/[^/].*)$/s;

/** Creates the link for the options. Throws GuestError if they are invalid. */
function linkOf(options: ConnectOptions, connectTimeoutMs: number): Link {
  if ("bridge" in options) return new BridgeLink(options);
  // Check the type of the address, because JavaScript callers may pass anything.
  const { address }: { readonly address?: unknown } = options;
  const addresses: readonly unknown[] = Array.isArray(address) ? address : [address];
  if (addresses.length === 0 || addresses.some((each) => typeof each !== "string" || each === "")) {
    throw invalidOption("address", "address is missing; give host:port or unix:/path, or a bridge command as bridge");
  }
  const endpoints = (addresses as readonly string[]).map((each) => endpointOf(each, options));
  const [endpoint] = endpoints;
  if (endpoint === undefined || endpoints.length > 1 || endpoint.vsockPort !== undefined || "command" in endpoint.to) {
    if ("caPem" in options && options.pinnedCertPem !== undefined)
      throw invalidOption("pinnedCertPem", "pinnedCertPem requires a single address, of the form host:port");
    return new DialledLink(endpoints, connectTimeoutMs);
  }
  const { to, tls } = endpoint;
  const direct: DirectEndpoint = { address: endpoint.address, to, tls };
  if ("path" in to) {
    return {
      target: `unix:${to.path}`,
      credentials: credentials.createInsecure(),
      options: {},
      explain: (limitMs) => explain(direct, limitMs),
    };
  }
  const serverName = tls?.serverName ?? DEFAULT_SERVER_NAME;
  const context = tls?.context ?? createSecureContext();
  return {
    target: targetOf(endpoint.address),
    credentials: tcpCredentials(context, options),
    options: { "grpc.ssl_target_name_override": serverName, "grpc.default_authority": serverName },
    explain: (limitMs) => explain(direct, limitMs),
    release: () => freeContext(context),
  };
}

function tcpCredentials(context: SecureContext, options: ConnectOptions): ChannelCredentials {
  const pinned = "caPem" in options ? options.pinnedCertPem : undefined;
  if (pinned === undefined) return ChannelCredentials.createFromSecureContext(context);
  return acceptingExpired(context, pem(pinned, "pinnedCertPem"));
}

const ADDRESS = /^(?:\[[\da-fA-F:.]+(?:%[\w.-]+)?\]|[^:/[\]\s]+):\d{1,5}$/;
/**
 * The two forms of a vsock address: the path of a VMM's unix socket and a vsock port, or the CID of a guest and a vsock
 * port.
 */
const VSOCK_UNIX_ADDRESS = /^vsock\+unix:(\/.+):(\d{1,10})$/s;
const VSOCK_ADDRESS = /^vsock:(\d{1,10}):(\d{1,10})$/;

/** Parses an address. Throws GuestError for a malformed address or PEM. */
function endpointOf(address: string, options: Exclude<ConnectOptions, { readonly bridge: unknown }>): Endpoint {
  const reserved = reservedTransport(address);
  if (reserved !== undefined)
    throw invalidOption("address", `the address ${reserved}; use host:port, unix:/path or a bridge command`);
  if (address.includes("\0")) throw invalidOption("address", "address contains a NUL character");
  const path = UNIX_ADDRESS.exec(address)?.[1];
  if (path !== undefined) return { address, to: { path } };
  if (/^vsock[:+]/.test(address)) return { ...vsockEndpoint(address), tls: tlsOf(options) };
  if (!("caPem" in options)) {
    throw invalidOption(
      "address",
      `"${address}" is not unix:/path; to connect to host:port, also give caPem, certPem and keyPem`,
    );
  }
  const port = Number(address.slice(address.lastIndexOf(":") + 1));
  if (!ADDRESS.test(address) || port < 1 || port > LAST_PORT) {
    throw invalidOption(
      "address",
      `"${address}" is not an address; write host:port with a port from 1 to ${LAST_PORT} and an IPv6 address in brackets, or unix:/path`,
    );
  }
  const host = address.slice(0, address.lastIndexOf(":")).replace(/^\[(.*)\]$/, "$1");
  return { address, to: { host, port }, tls: tlsOf(options) };
}

function vsockEndpoint(address: string): Endpoint {
  const [, path, guestPort] = VSOCK_UNIX_ADDRESS.exec(address) ?? [];
  const [, cid, port = guestPort] = VSOCK_ADDRESS.exec(address) ?? [];
  const vsockPort = Number(port);
  if ((path === undefined && cid === undefined) || vsockPort < 1 || vsockPort > LAST_VSOCK_PORT) {
    const forms = "vsock+unix:/path:port or vsock:CID:port";
    throw invalidOption("address", `"${address}" is not an address; write ${forms}, port 1 to ${LAST_VSOCK_PORT}`);
  }
  if (path !== undefined) return { address, to: { path }, vsockPort };
  // Connect with socat, because Node has no AF_VSOCK sockets and this library has no native code.
  return { address, to: { command: ["socat", "-", `VSOCK-CONNECT:${cid}:${vsockPort}`] } };
}

/** TLS settings of an endpoint; undefined if the options have no certificates. */
function tlsOf(options: ConnectOptions): Endpoint["tls"] {
  if (!("caPem" in options)) return undefined;
  const { serverName = DEFAULT_SERVER_NAME } = options;
  // The server name must be a valid header value, because grpc-js also sends it as a header.
  if (typeof (serverName as unknown) !== "string" || !/^[\x21-\x7e]+$/.test(serverName))
    throw invalidOption("serverName", "serverName requires a name of visible ASCII characters, such as guest-agent");
  return { context: secureContext(options), serverName };
}

function secureContext({ caPem, certPem, keyPem }: TcpOptions): ReturnType<typeof createSecureContext> {
  const [ca, cert, key] = [pem(caPem, "caPem"), pem(certPem, "certPem"), pem(keyPem, "keyPem")];
  try {
    return createSecureContext({ ca, cert, key, minVersion: "TLSv1.3" });
  } catch (cause) {
    throw invalidOption(
      "keyPem",
      "caPem, certPem or keyPem is not valid PEM, or the key does not belong to the certificate",
      cause,
    );
  }
}

/**
 * Rejects text that is not PEM, because with an empty text, for example, Node would silently connect without the
 * credential.
 */
function pem(value: string | Uint8Array, name: string): Buffer {
  const isGiven = typeof value === "string" || value instanceof Uint8Array;
  const bytes = isGiven ? Buffer.from(value) : Buffer.alloc(0);
  if (bytes.includes("-----BEGIN ")) return bytes;
  throw invalidOption(name, `${name} is not PEM`);
}
