import { isIPv6 } from "node:net";
import { resolve } from "node:path";
import { connect, type ConnectOptions, DEFAULT_SERVER_NAME, type GuestClient } from "../client/index.ts";
import { readClientCredentials, readToken } from "../credentials/index.ts";
import { reservedTransport } from "../../shared/transports.ts";
import { UsageError } from "./errors.ts";
import { optionsText } from "./help.ts";
import type { SandboxTarget } from "./sandbox/reach.ts";
import type { Target } from "./target.ts";
import { LAST_PORT } from "./values.ts";

/** The contract's port of the agent's listener. */
const DEFAULT_PORT = 7071;

/** Time for an agent to answer, including connecting, for calls that do not wait for a command. */
export const ANSWER_TIMEOUT_MS = 10_000;

/** Makes clients of one agent, each with its own connection. */
export interface Connector {
  /** The agent's address, for people. */
  readonly place: string;
  readonly connect: () => GuestClient;
  /** Reads the credentials anew, which change with a restore; absent where a bridge leads to the agent. */
  readonly redial: (() => Promise<ConnectOptions>) | undefined;
}

/** Makes the client that flags and environment ask for. Throws UsageError, or CredentialsError for unreadable files. */
export async function openClient(values: ConnectionValues, host: NodeJS.Process): Promise<GuestClient> {
  return (await connector(values, host)).connect();
}

/** Makes any number of such clients. Throws what openClient throws. */
export async function connector(values: ConnectionValues, host: NodeJS.Process): Promise<Connector> {
  const named = resolveTarget(values, host.env);
  const target = await targetNow(named, host);
  const options = await connectOptions(target);
  let latest: GuestClient | undefined;
  // Close it: a bridge has a socket in TMPDIR.
  if (target.bridge !== undefined) host.once("exit", () => latest?.close());
  return {
    place: target.bridge ?? target.address ?? "",
    connect: () => {
      latest = connect(options);
      return latest;
    },
    redial: target.bridge === undefined ? async () => connectOptions(await targetNow(named, host)) : undefined,
  };
}

/** Asks the substrate where a sandbox is now; any other agent stays where it is. Throws SandboxError. */
async function targetNow(named: Target | SandboxTarget, host: NodeJS.Process): Promise<Target> {
  if (!("sandbox" in named)) return named;
  // Loads the room of sandboxes, which nothing else here needs.
  const { targetOfSandbox } = await import("./sandbox/reach.ts");
  return targetOfSandbox(named, host);
}

async function connectOptions({ address = "", bridge, credentials, serverName }: Target): Promise<ConnectOptions> {
  if (bridge !== undefined) return { bridge: [...SHELL, bridge], token: await readToken(credentials) };
  const whole = wholeAddress(address);
  if (whole.startsWith(UNIX_PREFIX)) return { address: whole, token: await readToken(credentials) };
  return { address: whole, serverName, ...(await readClientCredentials(credentials)) };
}

/** Runs a command line as ssh(1) runs its ProxyCommand. */
const SHELL = ["/bin/sh", "-c"];

/** Options of every command that talks to an agent. */
export const CONNECTION_OPTIONS = {
  sandbox: {
    type: "string",
    topic: "connection",
    argument: "NAME",
    completes: "sandbox",
    help: 'a sandbox of this node ("guestctl sandbox ls"), instead of address and credentials (or GUESTCTL_SANDBOX)',
  },
  address: {
    type: "string",
    topic: "connection",
    short: "H",
    argument: "ADDRESS",
    help: `where the agent listens: HOST[:PORT], port ${DEFAULT_PORT} by default, or unix:PATH (or GUESTCTL_ADDRESS)` as string,
  },
  bridge: {
    type: "string",
    topic: "connection",
    argument: "COMMAND",
    help: "a shell command whose standard input and output lead to the agent, instead of an address (or GUESTCTL_BRIDGE)",
  },
  credentials: {
    type: "string",
    topic: "connection",
    short: "c",
    argument: "DIR",
    completes: "folder",
    help: 'folder made by "guestctl issue" (or GUESTCTL_CREDENTIALS); unix: and --bridge only need its token',
  },
  "server-name": {
    type: "string",
    topic: "connection",
    argument: "NAME",
    help: `name in the agent's certificate (default ${DEFAULT_SERVER_NAME}; or GUESTCTL_SERVER_NAME)` as string,
  },
  state: {
    type: "string",
    topic: "connection",
    argument: "DIR",
    completes: "folder",
    help: 'with a sandbox: its node\'s journal, as of "guestctl sandbox" (or GUESTCTL_STATE)',
  },
  api: {
    type: "string",
    topic: "connection",
    argument: "URL",
    help: "with a sandbox: the substrate's daemon (or HYPEMAN_BASE_URL); its token is HYPEMAN_API_KEY",
  },
} as const;

/** The help topic of these options: "guestctl help connection". */
export const CONNECTION_HELP: string = `Which agent a command talks to, and how it is let in

These options stand before or behind the name of every command that talks to an agent:

${optionsText(CONNECTION_OPTIONS)}

Options win over variables. A sandbox has credentials of its own; the node's journal and the substrate's daemon know its
address.

  guestctl issue ./creds                                  # an authority, certificates and a token, for agent and client
  export GUESTCTL_ADDRESS=10.0.0.7 GUESTCTL_CREDENTIALS=./creds
  guestctl health
  guestctl exec --sandbox box -- uname -a                 # of those that "guestctl sandbox create" makes
  guestctl -H unix:/run/box/guest.sock -c ./creds exec -it -- sh
  guestctl --bridge "docker exec -i box guest-agent bridge" -c ./creds health
`;

/** Their values. */
export type ConnectionValues = { readonly [Name in keyof typeof CONNECTION_OPTIONS]?: string | undefined };

/** The parts of a target that are known. */
type Settings = { readonly [Name in keyof Target]?: Target[Name] | undefined } & {
  readonly sandbox?: string | undefined;
};

/** Which agent a command line means, and how to be let in: flags first, then the environment. Throws UsageError. */
export function resolveTarget(values: ConnectionValues, env: NodeJS.ProcessEnv): Target | SandboxTarget {
  const { "server-name": serverName, ...flags } = values;
  const known = over(
    settingsOf(["--sandbox", "--address", "--bridge"], { ...flags, serverName }),
    settingsOf(["GUESTCTL_SANDBOX", "GUESTCTL_ADDRESS", "GUESTCTL_BRIDGE"], {
      sandbox: env["GUESTCTL_SANDBOX"],
      address: env["GUESTCTL_ADDRESS"],
      bridge: env["GUESTCTL_BRIDGE"],
      credentials: env["GUESTCTL_CREDENTIALS"],
      serverName: env["GUESTCTL_SERVER_NAME"],
    }),
  );
  return known.sandbox === undefined ? complete(known) : sandboxTarget(known.sandbox, values);
}

/** Throws UsageError for flags about another agent. */
function sandboxTarget(sandbox: string, values: ConnectionValues): SandboxTarget {
  const other = (["credentials", "server-name"] as const).find((name) => (values[name] ?? "") !== "");
  if (other === undefined) return { sandbox, state: values.state, api: values.api };
  throw new UsageError(
    `--${other} does not go with the sandbox ${sandbox}, which brings its own; leave one of them out`,
  );
}

function hasPlace({ sandbox, address, bridge }: Settings): boolean {
  return sandbox !== undefined || address !== undefined || bridge !== undefined;
}

/** An empty value counts as unset, as in most programs: `NAME= guestctl …` disables a variable. */
function settingsOf(places: readonly [sandbox: string, address: string, bridge: string], given: Settings): Settings {
  const entries = Object.entries(given).filter(([, value]: [string, unknown]) => value !== undefined && value !== "");
  const settings: Settings = Object.fromEntries(entries);
  const { sandbox, address, bridge } = settings;
  const named = places.filter((_, index) => [sandbox, address, bridge][index] !== undefined);
  if (named.length > 1) throw new UsageError(`${named.join(" and ")} do not go together`);
  return settings;
}

/** Merges two targets; the first wins. Sandbox, address and bridge are one setting: where the agent is. */
function over(first: Settings, second: Settings): Settings {
  const { sandbox, address, bridge } = hasPlace(first) ? first : second;
  return {
    sandbox,
    address,
    bridge,
    credentials: first.credentials ?? second.credentials,
    serverName: first.serverName ?? second.serverName,
  };
}

function complete({ address, bridge, credentials, serverName }: Settings): Target {
  if (address === undefined && bridge === undefined) {
    throw new UsageError("no address; give --sandbox, --address or --bridge, or set GUESTCTL_ADDRESS");
  }
  if (credentials === undefined) {
    throw new UsageError("no credentials; give --credentials DIR or set GUESTCTL_CREDENTIALS");
  }
  return { address, bridge, credentials, serverName };
}

const UNIX_PREFIX = "unix:";

/** Adds the default port to a host name or IP address; makes the path of a socket absolute. Throws UsageError. */
export function wholeAddress(address: string): string {
  if (address === UNIX_PREFIX) throw new UsageError(`${address} lacks the path of a socket; write unix:PATH`);
  if (address.startsWith(UNIX_PREFIX)) return `${UNIX_PREFIX}${resolve(address.slice(UNIX_PREFIX.length))}`;
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
