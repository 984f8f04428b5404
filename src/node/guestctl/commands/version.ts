import { AGENT_VERSION } from "../../../shared/version.ts";
import { type Command, defineCommand, reportText } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../target/index.ts";

export const version: Command = defineCommand({
  usage: ["version [options]"],
  about:
    "Prints the versions of guestctl and of the agent, which a restored snapshot keeps. Does not count as user activity.",
  options: { client: { help: "only guestctl's own" }, ...CONNECTION_OPTIONS },
  notes: 'With --json, one object: "client" and "agent" (null: not asked, or it sends none).',
  statuses: "0 printed, 125 no answer.",
  examples: ["version", "version --client"],
  async run({ values }, host) {
    // Print this first: it is useful even if the connection fails.
    if (values.json !== true) host.stdout.write(reportText([["guestctl", AGENT_VERSION]]));
    if (values.client === true) return { text: "", json: { client: AGENT_VERSION, agent: null } };
    using client = await openClient(values, host);
    await client.health({ timeoutMs: ANSWER_TIMEOUT_MS });
    const agent = client.agentVersion;
    const text = reportText([["agent", agent ?? "unknown"]], "guestctl".length);
    return { text, json: { client: AGENT_VERSION, agent: agent ?? null } };
  },
});
