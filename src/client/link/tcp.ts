import { createSecureContext } from "node:tls";
import { ChannelCredentials } from "@grpc/grpc-js";
import { GuestError } from "../errors.ts";
import type { Link } from "./link.ts";
import { DEFAULT_SERVER_NAME, type TcpOptions } from "./options.ts";

const ADDRESS = /^(?:\[[\da-fA-F:.]+(?:%[\w.-]+)?\]|[^:/[\]\s]+):\d{1,5}$/;

const LAST_PORT = 65_535;

/** Mutual TLS 1.3 to a host and port. Throws GuestError for an address of another form or PEM that is none. */
export function tcpLink(options: TcpOptions): Link {
  const { address, serverName = DEFAULT_SERVER_NAME } = options;
  const port = Number(address.slice(address.lastIndexOf(":") + 1));
  if (!ADDRESS.test(address) || port < 1 || port > LAST_PORT) {
    throw new GuestError({
      status: "INVALID_ARGUMENT",
      message: `"${address}" is no address; write host:port with a port from 1 to ${LAST_PORT} and an IPv6 address in brackets, or unix:/path`,
    });
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
    const message = "caPem, certPem or keyPem cannot be read, or the key is not that of the certificate";
    throw new GuestError({ status: "INVALID_ARGUMENT", message, cause });
  }
}

/** Node would take an empty text for none, and connect without. */
function pem(value: string | Uint8Array, name: string): Buffer {
  const isGiven = typeof value === "string" || value instanceof Uint8Array;
  const bytes = isGiven ? Buffer.from(value) : Buffer.alloc(0);
  if (bytes.includes("-----BEGIN ")) return bytes;
  throw new GuestError({ status: "INVALID_ARGUMENT", message: `${name} holds no PEM` });
}
