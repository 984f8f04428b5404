import type { Subcommand } from "../../cli/index.ts";
import {
  awakeningObject,
  awakeningText,
  ENVIRONMENT_OPTIONS,
  FREEZE_OPTION,
  RESTORE_OPTIONS,
  sandboxObject,
  statusOf,
  TIMEOUT_OPTION,
  WAIT_OPTION,
} from "../../sandbox/index.ts";
import { defineVerb, RESTORE_STATUSES, variablesOf } from "./verb.ts";

export const fork: Subcommand = defineVerb({
  summary: "make another sandbox from a sandbox or a snapshot",
  usage: ["fork NAME [--name FORK] [-e NAME=value]..."],
  about: `Makes another sandbox from a sandbox or a snapshot. The fork gets new credentials, and its random number
generators are reseeded. With -e, it also gets other variables. A running source is suspended during the fork, and
resumed afterwards.`,
  options: {
    name: { argument: "FORK", help: "name of the fork (default: a random one)" },
    ...ENVIRONMENT_OPTIONS,
    ...FREEZE_OPTION,
    ...RESTORE_OPTIONS,
    "accept-degraded": { help: "keep the fork even if its random number generators could not be reseeded" },
    ...TIMEOUT_OPTION,
    ...WAIT_OPTION,
  },
  statuses: RESTORE_STATUSES,
  examples: ["fork box --name twin", "fork ready -e TOKEN=other --name second"],
  takes: { one: "the name of one sandbox or snapshot" },
  completes: ["sandbox"],
  async run({ node, values, positionals: [from = ""], host }) {
    const {
      sandbox: made,
      awakening,
      source,
    } = await node.fork(from, {
      name: values.name,
      acceptBundle: values["accept-bundle"],
      acceptUnfrozen: values["accept-unfrozen"],
      acceptDegraded: values["accept-degraded"],
      minAgentVersion: values["min-agent"],
      env: await variablesOf(values, host),
    });
    const text = `${source === undefined ? "" : awakeningText(from, source)}${awakeningText(made.name, awakening)}`;
    const json = { sandbox: sandboxObject(made), fork: awakeningObject(awakening), source: awakeningObject(source) };
    return { text, json, status: statusOf(awakening, source) };
  },
});
