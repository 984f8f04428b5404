import { connect, type GuestClient } from "../../client/index.ts";
import { readClientCredentials } from "../credentials/index.ts";
import type { Context } from "../contexts/index.ts";
import { withPort } from "./address.ts";
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
export async function openClient(values: ConnectionValues, env: NodeJS.ProcessEnv): Promise<GuestClient> {
  return (await connector(values, env)).connect();
}

/** Makes as many such clients as are needed. Throws what openClient throws. */
export async function connector(values: ConnectionValues, env: NodeJS.ProcessEnv): Promise<Connector> {
  return connectorOf(await resolveTarget(values, env));
}

async function connectorOf({ address = "", credentials, serverName }: Context): Promise<Connector> {
  const place = withPort(address);
  const options = { address: place, serverName, ...(await readClientCredentials(credentials)) };
  return { place, connect: () => connect(options) };
}
