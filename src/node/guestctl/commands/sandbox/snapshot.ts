import type { Subcommand } from "../../cli/index.ts";
import {
  awakeningObject,
  awakeningText,
  FREEZE_OPTION,
  suspendReportText,
  snapshotObject,
  statusOf,
  TIMEOUT_OPTION,
  WAIT_OPTION,
} from "../../sandbox/index.ts";
import { defineVerb, RESTORE_STATUSES } from "./verb.ts";

export const snapshot: Subcommand = defineVerb({
  summary: "keep the state of a sandbox; the sandbox continues",
  usage: ["snapshot NAME [--name SNAPSHOT] [--freeze on|off|required]"],
  about: `Takes a snapshot of a sandbox, with its memory and disk, from which "guestctl sandbox fork" makes other sandboxes. A
running sandbox is suspended during the snapshot, and resumed afterwards.`,
  options: {
    name: { argument: "SNAPSHOT", help: "name of the snapshot (default: a random one)" },
    ...FREEZE_OPTION,
    ...TIMEOUT_OPTION,
    ...WAIT_OPTION,
  },
  statuses: RESTORE_STATUSES,
  examples: ["snapshot box --name ready", "snapshot box --freeze required"],
  takes: { one: "the name of one sandbox" },
  completes: ["sandbox"],
  async run({ node, values, positionals: [source = ""] }) {
    const { snapshot: taken, awakening } = await node.snapshot(source, { name: values.name });
    const rest = taken.preSnapshot === undefined ? "" : `; ${suspendReportText(taken.preSnapshot)}`;
    const text = `${taken.name} is a snapshot of ${source}${rest}\n${awakeningText(source, awakening)}`;
    const json = { snapshot: snapshotObject(taken), source: awakeningObject(awakening) };
    return { text, json, status: statusOf(awakening) };
  },
});
