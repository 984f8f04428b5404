import { type Context, contextsPath, readContexts } from "../contexts/index.ts";
import { CliError, UsageError } from "../errors.ts";
import type { ConnectionValues } from "./options.ts";

/** What is known of how to reach an agent. */
interface Settings {
  readonly address?: string | undefined;
  readonly bridge?: string | undefined;
  readonly credentials?: string | undefined;
  readonly serverName?: string | undefined;
}

/**
 * Decides which agent a command line means and how to be let in. Flags come first. What they leave open comes from the
 * context that `--context` names; without it from the environment, and then from the context of GUESTCTL_CONTEXT or the
 * current one, unless the address is known by then: its credentials are for its own agent. Throws UsageError, or CliError
 * for an unreadable file.
 */
export async function resolveTarget(values: ConnectionValues, env: NodeJS.ProcessEnv): Promise<Context> {
  const flags = settingsOf("--address and --bridge", {
    address: values.address,
    bridge: values.bridge,
    credentials: values.credentials,
    serverName: values["server-name"],
  });
  if (values.context !== undefined) return complete(over(flags, await contextNamed(values.context, env)));
  const variables = settingsOf("GUESTCTL_ADDRESS and GUESTCTL_BRIDGE", {
    address: env["GUESTCTL_ADDRESS"],
    bridge: env["GUESTCTL_BRIDGE"],
    credentials: env["GUESTCTL_CREDENTIALS"],
    serverName: env["GUESTCTL_SERVER_NAME"],
  });
  const known = over(flags, variables);
  return complete(hasPlace(known) ? known : over(known, await contextInUse(env)));
}

function hasPlace({ address, bridge }: Settings): boolean {
  return address !== undefined || bridge !== undefined;
}

/** An empty value is none, as in most programs: `NAME= guestctl …` switches a variable off. */
function settingsOf(pair: string, given: Settings): Settings {
  const entries = Object.entries(given).filter(([, value]: [string, unknown]) => value !== undefined && value !== "");
  const settings: Settings = Object.fromEntries(entries);
  if (settings.address !== undefined && settings.bridge !== undefined) {
    throw new UsageError(`${pair} do not go together`);
  }
  return settings;
}

/** The address and the bridge are one setting: where the agent is. */
function over(first: Settings, second: Settings): Settings {
  const { address, bridge } = hasPlace(first) ? first : second;
  return {
    address,
    bridge,
    credentials: first.credentials ?? second.credentials,
    serverName: first.serverName ?? second.serverName,
  };
}

function complete({ address, bridge, credentials, serverName }: Settings): Context {
  if (address === undefined && bridge === undefined) {
    throw new UsageError(
      'no address; give --address or --bridge, set GUESTCTL_ADDRESS, or name one with "guestctl context set"',
    );
  }
  if (credentials === undefined) {
    throw new UsageError("no credentials; give --credentials DIR or set GUESTCTL_CREDENTIALS");
  }
  return { address, bridge, credentials, serverName };
}

async function contextNamed(name: string, env: NodeJS.ProcessEnv): Promise<Context> {
  const path = contextsPath(env);
  const { byName } = await readContexts(path);
  const context = byName.get(name);
  if (context !== undefined) return context;
  const others = byName.size === 0 ? "there are none" : `there are ${[...byName.keys()].join(", ")}`;
  throw new CliError(`there is no context ${JSON.stringify(name)} in ${path}; ${others}`);
}

async function contextInUse(env: NodeJS.ProcessEnv): Promise<Settings> {
  const { GUESTCTL_CONTEXT: chosen = "" } = env;
  const name = chosen === "" ? (await readContexts(contextsPath(env))).current : chosen;
  return name === undefined ? {} : contextNamed(name, env);
}
