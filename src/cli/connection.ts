import { isIPv6 } from "node:net";
import { connect, DEFAULT_SERVER_NAME, type GuestClient } from "../client/index.ts";
import { readClientCredentials } from "./credentials/index.ts";
import { UsageError } from "./errors.ts";

/** The contract's port of the agent's listener. */
const DEFAULT_PORT = 7071;

/** Time for an agent to answer, connecting included, where guestctl does not wait for a command. */
export const ANSWER_TIMEOUT_MS = 10_000;

/** Options of every command that talks to an agent, for parseArgs. */
export const CONNECTION_OPTIONS = {
  address: { type: "string", short: "a" },
  credentials: { type: "string", short: "c" },
  "server-name": { type: "string" },
} as const;

/** Their part of a help text. */
export const CONNECTION_HELP: string = `  -a, --address HOST[:PORT]   where the agent listens; port ${DEFAULT_PORT} by default (or GUESTCTL_ADDRESS)
  -c, --credentials DIR       folder made by "guestctl issue" (or GUESTCTL_CREDENTIALS)
      --server-name NAME      name in the agent's certificate (default ${DEFAULT_SERVER_NAME})
      --json                  output for programs`;

/** Values of CONNECTION_OPTIONS. */
export interface ConnectionValues {
  readonly address?: string | undefined;
  readonly credentials?: string | undefined;
  readonly "server-name"?: string | undefined;
}

/** Makes the client that flags and environment ask for. Throws UsageError, or CliError for unreadable credentials. */
export async function openClient(values: ConnectionValues, env: NodeJS.ProcessEnv): Promise<GuestClient> {
  return (await clientFactory(values, env))();
}

/** Makes as many such clients as are needed, each with a connection of its own. Throws what openClient throws. */
export async function clientFactory(values: ConnectionValues, env: NodeJS.ProcessEnv): Promise<() => GuestClient> {
  const address = values.address ?? env["GUESTCTL_ADDRESS"];
  const folder = values.credentials ?? env["GUESTCTL_CREDENTIALS"];
  if (!address) throw new UsageError("no address; give --address HOST:PORT or set GUESTCTL_ADDRESS");
  if (!folder) throw new UsageError("no credentials; give --credentials DIR or set GUESTCTL_CREDENTIALS");
  const options = {
    address: withPort(address),
    serverName: values["server-name"],
    ...(await readClientCredentials(folder)),
  };
  return () => connect(options);
}

/** Adds the default port to a host name, an IPv4 address or a bare or bracketed IPv6 address. */
export function withPort(address: string): string {
  if (/^\[.*\]:\d+$/.test(address) || /^[^:]+:\d+$/.test(address)) return address;
  if (/^\[.*\]$/.test(address) || /^[^:]+$/.test(address)) return `${address}:${DEFAULT_PORT}`;
  if (isIPv6(address)) return `[${address}]:${DEFAULT_PORT}`;
  throw new UsageError(`${address} is no address; write HOST:PORT, and an IPv6 address in brackets`);
}
