import { isIPv6 } from "node:net";
import { reservedTransport } from "../../transports.ts";
import { UsageError } from "../errors.ts";

/** The contract's port of the agent's listener. */
export const DEFAULT_PORT = 7071;

const LAST_PORT = 65_535;
const UNIX_PREFIX = "unix:";

/** Path of the socket that an address names; undefined for an address of the network. */
export function socketPath(address: string): string | undefined {
  return address.startsWith(UNIX_PREFIX) ? address.slice(UNIX_PREFIX.length) : undefined;
}

/** The address of a socket. */
export function socketAddress(path: string): string {
  return `${UNIX_PREFIX}${path}`;
}

/** Adds the default port to a host name, an IPv4 address or a bare or bracketed IPv6 address. Throws UsageError. */
export function withPort(address: string): string {
  const reserved = reservedTransport(address);
  if (reserved !== undefined) throw new UsageError(`the address ${reserved}; use HOST:PORT, unix:PATH or --bridge`);
  if (/^\[.*\]:\d+$/.test(address) || /^[^:]+:\d+$/.test(address)) {
    const port = Number(address.slice(address.lastIndexOf(":") + 1));
    if (port < 1 || port > LAST_PORT) throw new UsageError(`${address} has no port from 1 to ${LAST_PORT}`);
    return address;
  }
  if (/^\[.*\]$/.test(address) || /^[^:]+$/.test(address)) return `${address}:${DEFAULT_PORT}`;
  if (isIPv6(address)) return `[${address}]:${DEFAULT_PORT}`;
  throw new UsageError(`${address} is no address; write HOST:PORT, and an IPv6 address in brackets, or unix:PATH`);
}
