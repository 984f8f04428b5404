import { existsSync } from "node:fs";
import { isIPv6 } from "node:net";
import { join, resolve } from "node:path";
import {
  connect,
  type ConnectOptions,
  DEFAULT_PORT,
  DEFAULT_SERVER_NAME,
  type GuestClient,
} from "../../client/index.ts";
import { readClientCredentials, readToken } from "../../credentials/index.ts";
import { reservedTransport } from "../../../shared/transports.ts";
import { optionsText, parseWaitMs, setting, UsageError, type Values } from "../cli/index.ts";
import { showConnecting } from "./connecting.ts";
import type { SandboxTarget } from "../sandbox/index.ts";
import { LAST_PORT } from "../../../shared/ports.ts";

/** Deadline of a call that does not wait for a command. It includes the time to connect. */
export const ANSWER_TIMEOUT_MS = 10_000;

/** The address of an agent, and the credentials for it. */
interface AgentTarget {
  /** `HOST:PORT`, `unix:PATH` or a vsock address. Either this or `bridge` is present. */
  readonly address?: string | undefined;
  /** A shell command whose standard input and output are connected to the agent. */
  readonly bridge?: string | undefined;
  /** Directory with the token and the certificates for this agent. */
  readonly credentials: string;
  readonly serverName?: string | undefined;
}

/** Creates clients of one agent. Each client has its own connection. */
export interface Connector {
  readonly connect: () => GuestClient;
  /** Reads the address and the credentials again, because a restore may change them. Undefined if a bridge is used. */
  readonly redial: (() => Promise<ConnectOptions>) | undefined;
}

/** Creates a client from the options and the environment. Throws UsageError, or CredentialsError for unreadable files. */
export async function openClient(values: ConnectionValues, host: NodeJS.Process): Promise<GuestClient> {
  return (await connector(values, host)).connect();
}

/** Creates a connector from the options and the environment. Throws the same errors as openClient. */
export async function connector(values: ConnectionValues, host: NodeJS.Process): Promise<Connector> {
  const named = resolveTarget(values, host.env);
  const isVerbose = values.verbose === true;
  checkCredentialsOption(values.credentials);
  const target = await targetNow(named, host, isVerbose);
  if (isVerbose) await reportTarget(target, host);
  else showConnecting(whereOf(target), host);
  const connectTimeoutMs = parseWaitMs(values["connect-timeout"], "--connect-timeout");
  const options = { ...(await connectOptions(target)), connectTimeoutMs };
  let latest: GuestClient | undefined;
  // Close the client at exit, because a bridge would otherwise leave a socket in TMPDIR.
  if (target.bridge !== undefined) host.once("exit", () => latest?.close());
  return {
    connect: () => {
      latest = connect(options);
      return latest;
    },
    redial:
      target.bridge === undefined
        ? async () => ({ ...(await connectOptions(await targetNow(named, host))), connectTimeoutMs })
        : undefined,
  };
}

/**
 * Throws UsageError unless the directory of -c exists. The message explains -c, because in other tools -c means a
 * container, a cipher or a format.
 */
function checkCredentialsOption(path: string | undefined): void {
  if (path === undefined || path === "" || existsSync(path)) return;
  throw new UsageError(`-c (--credentials) requires a directory that "guestctl issue" made; there is none at ${path}`);
}

/**
 * Whether a failure to read the address and credentials again (`redial`) may be temporary. It may be if the sandbox is
 * suspended or its credentials are being replaced, but not if the sandbox does not exist.
 */
export function isDialError(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  return (
    error.name === "CredentialsError" ||
    (error.name === "SandboxError" && !("code" in error && error.code === "NOT_FOUND"))
  );
}

/**
 * Creates a client and checks that the agent answers within ANSWER_TIMEOUT_MS. Streams and file transfers need this
 * check, because they have no time limit of their own. Throws the same errors as openClient, and GuestError if the
 * agent does not answer.
 */
export async function answeringClient(values: ConnectionValues, host: NodeJS.Process): Promise<GuestClient> {
  const client = await openClient(values, host);
  try {
    await client.health({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
    return client;
  } catch (error) {
    client.close();
    throw error;
  }
}

/**
 * For --verbose: prints which agent guestctl connects to and with which credentials. From then on, each step of the
 * connection is printed too.
 */
async function reportTarget(target: AgentTarget, host: NodeJS.Process): Promise<void> {
  const { bridge, credentials, serverName } = target;
  // Load this module only for --verbose, because few command lines need it.
  const { reportConnections, reporterOf } = await import("../verbose/index.ts");
  const report = reporterOf(host);
  const where = whereOf(target);
  report(`${bridge === undefined ? "address " : ""}${where}; credentials in ${resolve(credentials)}`);
  if (serverName !== undefined) report(`name in the agent's certificate: ${serverName}`);
  reportConnections(report);
}

/** Describes the target for the user: its addresses, or `bridge COMMAND`. */
function whereOf({ address, bridge }: AgentTarget): string {
  return bridge === undefined ? wholeAddresses(address ?? "").join(", ") : `bridge ${bridge}`;
}

/** Asks the substrate for the current address of a sandbox. Returns any other target unchanged. Throws SandboxError. */
async function targetNow(
  named: AgentTarget | SandboxTarget,
  host: NodeJS.Process,
  isVerbose: boolean = false,
): Promise<AgentTarget> {
  if (!("sandbox" in named)) return named;
  // Load this module only for --sandbox, because it loads the sandbox library, which nothing else needs.
  const { targetOfSandbox } = await import("../sandbox/index.ts");
  return targetOfSandbox(named, host, isVerbose);
}

async function connectOptions({ address = "", bridge, credentials, serverName }: AgentTarget): Promise<ConnectOptions> {
  if (bridge !== undefined) return { bridge: [...SHELL, bridge], token: await readToken(credentials) };
  const addresses = wholeAddresses(address);
  const [single = ""] = addresses;
  const dialled = addresses.length === 1 ? single : addresses;
  // Over vsock, some agents use TLS and others do not. If the credential directory has no client certificate, connect
  // without TLS.
  const mayUseTls = addresses.some((each) => VSOCK.test(each)) && existsSync(join(credentials, "client.pem"));
  const usesTls = mayUseTls || addresses.some((each) => !each.startsWith(UNIX_PREFIX) && !VSOCK.test(each));
  if (!usesTls) return { address: dialled, token: await readToken(credentials) };
  return { address: dialled, serverName, ...(await readClientCredentials(credentials)) };
}

/** Runs a command line as ssh(1) runs its ProxyCommand. */
const SHELL = ["/bin/sh", "-c"];

/** Options of every command that calls an agent. */
export const CONNECTION_OPTIONS = {
  sandbox: {
    topic: "connection",
    argument: "NAME",
    completes: "sandbox",
    help: 'a sandbox of this node ("guestctl sandbox ls"), instead of address and credentials (default: $GUESTCTL_SANDBOX)',
  },
  address: {
    topic: "connection",
    short: "H",
    argument: "ADDRESS",
    help: `address of the agent: HOST[:PORT] (default port ${DEFAULT_PORT}), unix:PATH, vsock+unix:PATH:PORT or vsock:CID:PORT; several addresses, separated by commas, are tried in order (default: $GUESTCTL_ADDRESS)` as string,
  },
  bridge: {
    topic: "connection",
    argument: "COMMAND",
    help: "shell command that guestctl runs instead of connecting to an address: its standard input and output must be connected to the agent (default: $GUESTCTL_BRIDGE)",
  },
  credentials: {
    topic: "connection",
    short: "c",
    argument: "DIR",
    completes: "directory",
    help: 'directory made by "guestctl issue" (default: $GUESTCTL_CREDENTIALS); unix: and --bridge require only the token in it',
  },
  "server-name": {
    topic: "connection",
    argument: "NAME",
    help: `name in the agent's certificate (default: $GUESTCTL_SERVER_NAME, otherwise ${DEFAULT_SERVER_NAME})` as string,
  },
  "connect-timeout": {
    topic: "connection",
    argument: "DURATION",
    help: "time limit for a connection to be ready (default 10s); most commands also wait at most 10s for the first answer",
  },
  verbose: {
    topic: "connection",
    short: "v",
    help: "report on standard error each attempt to connect, with the address and the source of the credentials",
  },
  state: {
    topic: "connection",
    argument: "DIR",
    completes: "directory",
    help: 'for an agent chosen by sandbox name: directory of the node\'s journal, as for "guestctl sandbox" (default: $GUESTCTL_STATE)',
  },
  api: {
    topic: "connection",
    argument: "URL",
    help: "for an agent chosen by sandbox name: URL of the substrate's daemon (default: $HYPEMAN_BASE_URL); set HYPEMAN_API_KEY to the daemon's token",
  },
} as const;

/** The text of "guestctl help connection". */
export const CONNECTION_HELP: string = `How to choose an agent, and which credentials it needs

These options may precede or follow the name of every command that calls an agent:

${optionsText(CONNECTION_OPTIONS)}

Options take precedence over variables. Each sandbox has its own credentials; its address comes from the node's journal
and the substrate's daemon.

  guestctl issue ./creds                                  # an authority, certificates and a token, for agent and client
  export GUESTCTL_ADDRESS=10.0.0.7 GUESTCTL_CREDENTIALS=./creds
  guestctl health
  guestctl exec --sandbox box -- uname -a                 # a sandbox made by "guestctl sandbox create"
  guestctl -H unix:/run/box/guest.sock -c ./creds exec -it -- sh
  guestctl --bridge "docker exec -i box guest-agent bridge" -c ./creds health
`;

/** The parsed values of CONNECTION_OPTIONS. */
export type ConnectionValues = Values<typeof CONNECTION_OPTIONS>;

/** The options and variables that choose an agent. Only one of them may be given. */
const SELECTORS = ["sandbox", "address", "bridge"] as const;
type Selector = (typeof SELECTORS)[number];

/** Determines the agent and the credentials for it: options take precedence over the environment. Throws UsageError. */
export function resolveTarget(values: ConnectionValues, env: NodeJS.ProcessEnv): AgentTarget | SandboxTarget {
  const variable = (name: Selector): string => `GUESTCTL_${name.toUpperCase()}`;
  const selection =
    selectionOf(
      (name) => values[name],
      (name) => `--${name}`,
    ) ?? selectionOf((name) => env[variable(name)], variable);
  if (selection === undefined)
    throw new UsageError("no address; give --sandbox, --address or --bridge, or set GUESTCTL_ADDRESS");
  if (selection.sandbox !== undefined) return sandboxTarget(selection.sandbox, values);
  const credentials = setting(values.credentials, env["GUESTCTL_CREDENTIALS"]);
  if (credentials === undefined) {
    throw new UsageError("no credentials; give --credentials DIR or set GUESTCTL_CREDENTIALS");
  }
  return { ...selection, credentials, serverName: setting(values["server-name"], env["GUESTCTL_SERVER_NAME"]) };
}

/**
 * Returns the option or variable that chooses the agent; undefined if none is given. If there are several, throws
 * UsageError, which names them as the user wrote them.
 */
function selectionOf(
  valueOf: (name: Selector) => string | undefined,
  spelling: (name: Selector) => string,
): { readonly [Name in Selector]?: string | undefined } | undefined {
  const [name, ...more] = SELECTORS.filter((each) => setting(valueOf(each)) !== undefined);
  if (name === undefined) return undefined;
  if (more.length > 0) throw new UsageError(`${[name, ...more].map(spelling).join(" and ")} cannot be combined`);
  return { [name]: valueOf(name) };
}

/** Throws UsageError if an option is given that does not apply to sandboxes of this node. */
function sandboxTarget(sandbox: string, values: ConnectionValues): SandboxTarget {
  const other = (["credentials", "server-name"] as const).find((name) => setting(values[name]) !== undefined);
  if (other === undefined) return { sandbox, state: values.state, api: values.api };
  throw new UsageError(`--${other} cannot be combined with --sandbox ${sandbox}, which has its own; omit one of them`);
}

const UNIX_PREFIX = "unix:";
const VSOCK = /^vsock[:+]/;

/** Splits a comma-separated list of addresses, and completes each address. A comma in a socket's path does not split. */
function wholeAddresses(text: string): readonly string[] {
  const parts = text.split(",");
  if (parts.length > 1 && parts.slice(1).every((part) => /^(?:unix:|vsock[+:])|^[^/]+$/.test(part))) {
    return parts.map(wholeAddress);
  }
  return [wholeAddress(text)];
}

/** Adds the default port to a host name or IP address, or makes the path of a socket absolute. Throws UsageError. */
export function wholeAddress(address: string): string {
  if (address === UNIX_PREFIX) throw new UsageError(`${address} lacks the path of a socket; write unix:PATH`);
  const [, prefix, path = ""] = /^((?:vsock\+)?unix:)(.+)$/s.exec(address) ?? [];
  if (prefix !== undefined) return `${prefix}${resolve(path)}`;
  // A vsock address is not checked here, because the library reports what is wrong in it.
  if (VSOCK.test(address)) return address;
  const reserved = reservedTransport(address);
  if (reserved !== undefined) throw new UsageError(`the address ${reserved}; use HOST:PORT, unix:PATH or --bridge`);
  if (/^\[.*\]:\d+$/.test(address) || /^[^:]+:\d+$/.test(address)) {
    const port = Number(address.slice(address.lastIndexOf(":") + 1));
    if (port < 1 || port > LAST_PORT) throw new UsageError(`${address} has no port from 1 to ${LAST_PORT}`);
    return address;
  }
  if (/^\[.*\]$/.test(address) || /^[^:]+$/.test(address)) return `${address}:${DEFAULT_PORT}`;
  if (isIPv6(address)) return `[${address}]:${DEFAULT_PORT}`;
  throw new UsageError(`${address} is not an address; write HOST:PORT, with an IPv6 address in brackets, or unix:PATH`);
}
