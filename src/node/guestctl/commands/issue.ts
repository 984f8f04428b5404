import { DEFAULT_PORT, DEFAULT_SERVER_NAME } from "../../client/index.ts";
import { agentVariables, issueCredentials, prepareDirectory } from "../../credentials/index.ts";
import { type Command, defineCommand, parseCount, quoted, UsageError } from "../cli/index.ts";

const DAY_MS = 86_400_000;
const DEFAULT_DAYS = 365;

export const issue: Command = defineCommand({
  usage: ["issue [options] DIR"],
  about: `Creates the credentials of one sandbox in DIR (mode 0700): a certificate authority (its key is deleted), a server and a
client certificate, and an instance token. They are valid from 1970 on, for guests that boot without a clock.`,
  options: {
    days: { argument: "N", help: `days until they expire (default ${DEFAULT_DAYS})` },
    force: { help: "replace the credentials in DIR" },
  },
  notes: `The agent gets server.pem, server.key, ca.pem and token; the client gets client.pem, client.key, ca.pem and token.
With --json, one object: "folder", "not_after", and "agent_variables" (names and values for the agent's environment).`,
  statuses: "0 if the credentials were issued, 125 if guestctl failed.",
  examples: ["issue ./creds", "issue --days 7 --force ./creds"],
  takes: { one: "one directory" },
  completes: ["directory", "nothing"],
  async run({ values, positionals }) {
    const [directory = ""] = positionals;
    if (directory === "") throw new UsageError("issue requires one directory");
    const notAfter = lastDay(parseCount(values.days, "--days", 1) ?? DEFAULT_DAYS);
    prepareDirectory(directory, values.force === true);
    await issueCredentials(directory, DEFAULT_SERVER_NAME, notAfter);
    const variables = agentVariables(directory);
    const json = { folder: directory, not_after: notAfter.toISOString(), agent_variables: variables };
    return { text: asText(directory, notAfter, variables), json };
  },
});

/**
 * Returns the time at which the credentials expire. Throws UsageError for a time after the year 9999, which X.509
 * cannot express.
 */
function lastDay(days: number): Date {
  const date = new Date(Date.now() + days * DAY_MS);
  if (!(date.getUTCFullYear() <= 9999))
    throw new UsageError("--days would make the certificates valid beyond the year 9999");
  return date;
}

function asText(directory: string, notAfter: Date, agent: Readonly<Record<string, string>>): string {
  const variables = Object.entries({ ...agent, SVC_GUEST_PORT: String(DEFAULT_PORT) });
  const settings = variables.map(([name, value]) => `  ${name}=${quoted(value)}\n`).join("");
  return `Issued the credentials of one sandbox in ${directory}, valid until ${notAfter.toISOString().slice(0, 10)}.

Start the agent with
${settings}
and talk to it with
  guestctl health --address HOST:${DEFAULT_PORT} --credentials ${quoted(directory)}
`;
}
