import { resolve } from "node:path";
import { connect, type ConnectOptions, type GuestClient } from "../../client/index.ts";
import type { Context } from "../contexts/index.ts";
import { readClientCredentials, readToken } from "../credentials/index.ts";
import { socketAddress, socketPath, withPort } from "./address.ts";
import type { ConnectionValues } from "./options.ts";
import { resolveTarget } from "./target.ts";

/** Time for an agent to answer, connecting included, where guestctl does not wait for a command. */
export const ANSWER_TIMEOUT_MS = 10_000;

/** Makes clients of one agent, each with a connection of its own. */
export interface Connector {
  /** Where the agent is, for people. */
  readonly place: string;
  readonly connect: () => GuestClient;
}

/** Makes the client that flags, environment and contexts ask for. Throws UsageError, or CliError for unreadable files. */
export async function openClient(values: ConnectionValues, host: NodeJS.Process): Promise<GuestClient> {
  return (await connector(values, host)).connect();
}

/** Makes as many such clients as are needed. Throws what openClient throws. */
export async function connector(values: ConnectionValues, host: NodeJS.Process): Promise<Connector> {
  const target = await resolveTarget(values, host.env);
  const options = await connectOptions(target);
  let latest: GuestClient | undefined;
  // A bridge has a socket in TMPDIR.
  if (target.bridge !== undefined) atTheEnd(host, () => latest?.close());
  return {
    place: target.bridge ?? target.address ?? "",
    connect: () => {
      latest = connect(options);
      return latest;
    },
  };
}

/** Does something before guestctl ends: by itself, or by a signal that nobody else in it knows what to do with. */
function atTheEnd(host: NodeJS.Process, action: () => void): void {
  host.once("exit", action);
  for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"] as const) {
    const end = (): void => {
      if (host.listenerCount(signal) > 1) return;
      action();
      host.off(signal, end);
      host.kill(host.pid, signal);
    };
    host.on(signal, end);
  }
}

async function connectOptions({ address = "", bridge, credentials, serverName }: Context): Promise<ConnectOptions> {
  if (bridge !== undefined) return { bridge: [...SHELL, bridge], token: await readToken(credentials) };
  const path = socketPath(address);
  if (path !== undefined) return { address: socketAddress(resolve(path)), token: await readToken(credentials) };
  return { address: withPort(address), serverName, ...(await readClientCredentials(credentials)) };
}

/** Runs a command line as ssh(1) runs its ProxyCommand. */
const SHELL = ["/bin/sh", "-c"];
