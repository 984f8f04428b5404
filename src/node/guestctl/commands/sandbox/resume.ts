import type { Answer, Subcommand } from "../../cli/index.ts";
import {
  awakeningObject,
  awakeningText,
  ENVIRONMENT_OPTIONS,
  RESTORE_OPTIONS,
  statusOf,
  TIMEOUT_OPTION,
  WAIT_OPTION,
} from "../../sandbox/index.ts";
import { defineVerb, RESTORE_STATUSES, variablesOf, type VerbCall } from "./verb.ts";

const OPTIONS = { ...ENVIRONMENT_OPTIONS, ...RESTORE_OPTIONS, ...TIMEOUT_OPTION, ...WAIT_OPTION };

export const resume: Subcommand = defineVerb({
  summary: "continue a sandbox that is on standby",
  usage: ["resume NAME [-e NAME=value]..."],
  about: `Continues a sandbox that is on standby. The agent does its restore steps first: it reseeds random number generators,
sets the clock and reloads credentials; then the POST_RESTORE hook runs.`,
  options: OPTIONS,
  statuses: RESTORE_STATUSES,
  examples: ["resume box", "resume box -e TOKEN", "resume box --json | jq .awakening.clock_error_ms"],
  takes: { one: "the name of one sandbox" },
  completes: ["sandbox"],
  run: restored,
});

export const start: Subcommand = defineVerb({
  summary: "boot a stopped sandbox from its disk",
  usage: ["start NAME"],
  about:
    "Boots a stopped sandbox from its disk. If the sandbox is on standby, resumes it, as guestctl sandbox resume does.",
  options: OPTIONS,
  statuses: RESTORE_STATUSES,
  examples: ["start box"],
  takes: { one: "the name of one sandbox" },
  completes: ["sandbox"],
  run: restored,
});

async function restored({ node, values, positionals: [name = ""], host }: VerbCall<typeof OPTIONS>): Promise<Answer> {
  const env = await variablesOf(values, host);
  const awakening = await node.resume(name, {
    acceptBundle: values["accept-bundle"],
    acceptUnfrozen: values["accept-unfrozen"],
    minAgentVersion: values["min-agent"],
    env,
  });
  const json = { awakening: awakeningObject(awakening) };
  return { text: awakeningText(name, awakening), json, status: statusOf(awakening) };
}
