import { jsonLine, parseWaitMs, printable, type Subcommand } from "../../cli/index.ts";
import { FREEZE_OPTION, TIMEOUT_OPTION, WAIT_OPTION } from "../../sandbox/index.ts";
import { defineVerb } from "./verb.ts";

export const watch: Subcommand = defineVerb({
  summary: "check all sandboxes, run their idle actions, and enforce their time limits",
  usage: ["watch [--poll DURATION]"],
  about: `Checks the health of all sandboxes until a signal ends guestctl. Runs their idle actions (--idle-action), and enforces
their time limits (--ttl). An action that has begun is completed.`,
  options: {
    poll: { argument: "DURATION", help: "time between two checks of a sandbox (default 5s)" },
    ...FREEZE_OPTION,
    ...TIMEOUT_OPTION,
    ...WAIT_OPTION,
  },
  notes: "Prints one line for each event on standard output, with --json as an object.",
  statuses: "0 if a signal ended guestctl, 125 if guestctl failed.",
  examples: ["watch", "watch --poll 30s --json"],
  takes: "nothing",
  isEndless: true,
  async run({ node, values, host, signal }) {
    await node.watch({
      intervalMs: parseWaitMs(values.poll, "--poll"),
      signal,
      onEvent: (event) => {
        const text = `${event.name}: ${event.event}: ${printable(event.message)}\n`;
        host.stdout.write(values.json === true ? jsonLine(event) : text);
      },
    });
    return 0;
  },
});
