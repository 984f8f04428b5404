import { reservedTransport } from "../../transports.ts";
import { GuestError } from "../errors.ts";
import { BridgeLink } from "./bridge.ts";
import type { Link } from "./link.ts";
import type { ConnectOptions } from "./options.ts";
import { tcpLink } from "./tcp.ts";
import { unixSocketLink } from "./unix-socket.ts";

export type { Link } from "./link.ts";
export {
  type BridgeOptions,
  type ConnectOptions,
  DEFAULT_SERVER_NAME,
  type TcpOptions,
  type UnixSocketOptions,
} from "./options.ts";

/** `unix:/path`, or `unix:///path` as gRPC has it too. In `unix://name/path` the name would be lost without a word. */
const UNIX_ADDRESS = /^unix:(?:\/\/)?(\/[^/].*)$/s;

/** The link that the options describe. Throws GuestError where they are not valid. */
export function linkOf(options: ConnectOptions): Link {
  if ("bridge" in options) return new BridgeLink(options);
  const reserved = reservedTransport(options.address);
  if (reserved !== undefined) {
    const message = `the address ${reserved}; use host:port, unix:/path or a bridge command`;
    throw new GuestError({ status: "INVALID_ARGUMENT", message });
  }
  const socketPath = UNIX_ADDRESS.exec(options.address)?.[1];
  if (socketPath !== undefined) return unixSocketLink(socketPath);
  if ("caPem" in options) return tcpLink(options);
  throw new GuestError({
    status: "INVALID_ARGUMENT",
    message: `"${options.address}" is not unix:/path; an address of host:port needs caPem, certPem and keyPem`,
  });
}
