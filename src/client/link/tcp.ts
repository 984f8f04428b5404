import { createSecureContext } from "node:tls";
import { ChannelCredentials } from "@grpc/grpc-js";
import { GuestError } from "../errors.ts";
import type { Link } from "./link.ts";
import { DEFAULT_SERVER_NAME, type TcpOptions } from "./options.ts";

const ADDRESS = /^(?:\[[\da-fA-F:.]+(?:%[\w.-]+)?\]|[^:/[\]\s]+):\d{1,5}$/;

/** Mutual TLS 1.3 to a host and port. Throws GuestError for an address of another form or PEM that is none. */
export function tcpLink(options: TcpOptions): Link {
  const { address, serverName = DEFAULT_SERVER_NAME } = options;
  if (!ADDRESS.test(address)) {
    throw new GuestError({
      status: "INVALID_ARGUMENT",
      message: `"${address}" is no address; write host:port with an IPv6 address in brackets, or unix:/path`,
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
  try {
    return createSecureContext({ ca: pem(caPem), cert: pem(certPem), key: pem(keyPem), minVersion: "TLSv1.3" });
  } catch (cause) {
    throw new GuestError({
      status: "INVALID_ARGUMENT",
      message: "caPem, certPem and keyPem must be PEM, and the key that of the certificate",
      cause,
    });
  }
}

function pem(value: string | Uint8Array): string | Buffer {
  return typeof value === "string" ? value : Buffer.from(value);
}
