import type { Subcommand } from "../../cli/index.ts";
import { sandboxObject, statusText } from "../../sandbox/index.ts";
import { defineVerb } from "./verb.ts";

export const status: Subcommand = defineVerb({
  summary: "describe one sandbox",
  usage: ["status NAME"],
  about:
    "Describes one sandbox: its state, agent, image, address and credentials, and, if it is stopped, why it ended.",
  options: {},
  examples: ["status box", "status box --json | jq -r .state"],
  takes: { one: "the name of one sandbox" },
  completes: ["sandbox"],
  isReading: true,
  async run({ node, positionals: [name = ""] }) {
    const info = await node.get(name);
    return { text: statusText(info), json: sandboxObject(info) };
  },
});
