import {
  inSnakeCase,
  nextStepOf,
  STATUS_NOT_AS_INTENDED,
  STATUS_NOT_ISOLATED,
  type Subcommand,
} from "../../cli/index.ts";
import { AGENT_OPTION, planText, statusOf, sweepText, TIMEOUT_OPTION, WAIT_OPTION } from "../../sandbox/index.ts";
import { defineVerb, RESTORE_STATUSES } from "./verb.ts";

export const sweep: Subcommand = defineVerb({
  summary: "clean up after interrupted commands",
  usage: ["sweep [--dry-run] [--take-over]"],
  about: `Cleans up after interrupted commands. First runs the restore steps that an interrupted command left undone,
beginning with the sandbox whose frozen session would thaw soonest. Then removes half-made sandboxes and snapshots, and
everything at the daemon that has this node's tag but no entry in this node's journal. Run a sweep when a node starts.`,
  options: {
    "dry-run": { short: "n", help: "only report what a sweep would do" },
    "take-over": {
      help: "also remove what has this node's id, but was recorded in another journal, such as a lost one; use it only if no other node has this id",
    },
    ...AGENT_OPTION,
    ...TIMEOUT_OPTION,
    ...WAIT_OPTION,
  },
  statuses: RESTORE_STATUSES,
  examples: ["sweep", "sweep --dry-run"],
  takes: "nothing",
  async run({ node, values, progress }) {
    if (values["dry-run"] === true) {
      const plan = await node.sweepPlan({ takeOver: values["take-over"] });
      return { text: planText(plan), json: plan };
    }
    const report = await node.sweep({
      takeOver: values["take-over"],
      onProgress: (each) => progress.counts("sweep", each),
    });
    const outcomes = report.warnings.map(({ clockErrorMs, ...warning }) => ({ warnings: [warning], clockErrorMs }));
    const status = Math.max(
      statusOf(...outcomes),
      report.failed.length === 0 ? 0 : STATUS_NOT_AS_INTENDED,
      report.late.length === 0 ? 0 : STATUS_NOT_ISOLATED,
    );
    const failed = report.failed.map(({ remedy, ...each }) => ({ ...each, nextStep: nextStepOf({ ...each, remedy }) }));
    return { text: sweepText(report), json: { ...report, warnings: report.warnings.map(inSnakeCase), failed }, status };
  },
});
