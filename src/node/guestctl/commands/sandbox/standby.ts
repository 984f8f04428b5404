import { STATUS_NOT_AS_INTENDED, type Subcommand } from "../../cli/index.ts";
import {
  FREEZE_OPTION,
  suspendReportText,
  sandboxObject,
  statusOf,
  TIMEOUT_OPTION,
  WAIT_OPTION,
  warningLines,
} from "../../sandbox/index.ts";
import { defineVerb, RESTORE_STATUSES } from "./verb.ts";

export const standby: Subcommand = defineVerb({
  summary: "suspend a sandbox to disk",
  usage: ["standby NAME [--freeze on|off|required]"],
  about: `Suspends a sandbox to disk with its memory: the PRE_SNAPSHOT hook runs, the session is frozen, and the VM ends.
"guestctl sandbox resume" continues it.`,
  options: { ...FREEZE_OPTION, ...TIMEOUT_OPTION, ...WAIT_OPTION },
  statuses: RESTORE_STATUSES,
  examples: ["standby box", "standby box --freeze required"],
  takes: { one: "the name of one sandbox" },
  completes: ["sandbox"],
  async run({ node, positionals: [name = ""] }) {
    const { warnings, ...rest } = await node.standby(name);
    const text = `${warningLines(name, warnings)}${name} is on standby; ${suspendReportText(rest)}\n`;
    const isHookDone = !rest.timedOut && rest.exitCode === 0;
    const status = Math.max(statusOf({ warnings }), isHookDone ? 0 : STATUS_NOT_AS_INTENDED);
    return { text, json: { ...sandboxObject(await node.get(name)), warnings }, status };
  },
});
