import { createSecureContext } from "node:tls";
import { ChannelCredentials, credentials } from "@grpc/grpc-js";
import { reservedTransport } from "../../transports.ts";
import { invalidArgument } from "../errors.ts";
import { BridgeLink } from "./bridge.ts";
import { type ConnectOptions, DEFAULT_SERVER_NAME, type Link, type TcpOptions } from "./link.ts";

/** `unix:/path` or `unix:///path`, as in gRPC. Not `unix://name/path`: grpc-js would ignore the name silently. */
const UNIX_ADDRESS = /^unix:(?:\/\/)?(\/[^/].*)$/s;

/** The link that the options describe. Throws GuestError where they are not valid. */
export function linkOf(options: ConnectOptions): Link {
  if ("bridge" in options) return new BridgeLink(options);
  const reserved = reservedTransport(options.address);
  if (reserved !== undefined)
    throw invalidArgument(`the address ${reserved}; use host:port, unix:/path or a bridge command`);
  const socketPath = UNIX_ADDRESS.exec(options.address)?.[1];
  if (socketPath !== undefined) return unixSocketLink(socketPath);
  if ("caPem" in options) return tcpLink(options);
  throw invalidArgument(
    `"${options.address}" is not unix:/path; an address of host:port needs caPem, certPem and keyPem`,
  );
}

const ADDRESS = /^(?:\[[\da-fA-F:.]+(?:%[\w.-]+)?\]|[^:/[\]\s]+):\d{1,5}$/;

const LAST_PORT = 65_535;

/** Mutual TLS 1.3 to a host and port. Throws GuestError for a malformed address or PEM. */
function tcpLink(options: TcpOptions): Link {
  const { address, serverName = DEFAULT_SERVER_NAME } = options;
  const port = Number(address.slice(address.lastIndexOf(":") + 1));
  if (!ADDRESS.test(address) || port < 1 || port > LAST_PORT) {
    throw invalidArgument(
      `"${address}" is no address; write host:port with a port from 1 to ${LAST_PORT} and an IPv6 address in brackets, or unix:/path`,
    );
  }
  return {
    target: address,
    credentials: ChannelCredentials.createFromSecureContext(secureContext(options)),
    options: { "grpc.ssl_target_name_override": serverName, "grpc.default_authority": serverName },
    failure: () => undefined,
    close: () => undefined,
  };
}

function secureContext({ caPem, certPem, keyPem }: TcpOptions): ReturnType<typeof createSecureContext> {
  const [ca, cert, key] = [pem(caPem, "caPem"), pem(certPem, "certPem"), pem(keyPem, "keyPem")];
  try {
    return createSecureContext({ ca, cert, key, minVersion: "TLSv1.3" });
  } catch (cause) {
    throw invalidArgument("caPem, certPem or keyPem cannot be read, or the key is not that of the certificate", cause);
  }
}

/** Refuses an empty text: Node would connect without the credential. */
function pem(value: string | Uint8Array, name: string): Buffer {
  const isGiven = typeof value === "string" || value instanceof Uint8Array;
  const bytes = isGiven ? Buffer.from(value) : Buffer.alloc(0);
  if (bytes.includes("-----BEGIN ")) return bytes;
  throw invalidArgument(`${name} holds no PEM`);
}

/** A unix socket, by its absolute path. */
function unixSocketLink(path: string): Link {
  return {
    target: `unix:${path}`,
    credentials: credentials.createInsecure(),
    options: {},
    failure: () => undefined,
    close: () => undefined,
  };
}
