import type { Subcommand } from "../../cli/index.ts";
import { sandboxObject, statusOf, WAIT_OPTION, warningLines } from "../../sandbox/index.ts";
import { defineVerb } from "./verb.ts";

export const stop: Subcommand = defineVerb({
  summary: "shut a sandbox down; its disk stays",
  usage: ["stop NAME"],
  about: `Shuts a sandbox down: the workload gets SIGTERM and a grace period, and then the VM ends. The disk is kept, and
"guestctl sandbox start" boots the sandbox again.`,
  options: WAIT_OPTION,
  statuses: "0 if the sandbox has stopped, 1 if it has stopped with warnings, 125 if guestctl failed.",
  examples: ["stop box"],
  hints: [
    [
      "-t --time --timeout -s --signal",
      "the workload gets SIGTERM, and SIGKILL after its stop_grace_ms; --wait DURATION limits how long guestctl waits",
    ],
  ],
  takes: { one: "the name of one sandbox" },
  completes: ["sandbox"],
  async run({ node, positionals: [name = ""] }) {
    const { warnings } = await node.stop(name);
    const json = { sandbox: sandboxObject(await node.get(name)), warnings };
    return { text: `${warningLines(name, warnings)}${name} is stopped\n`, json, status: statusOf({ warnings }) };
  },
});
