import { reportFailure, STATUS_FAILED, STATUS_NOT_AS_INTENDED, type Subcommand } from "../../cli/index.ts";
import { defineVerb } from "./verb.ts";

export const rm: Subcommand = defineVerb({
  summary: "remove sandboxes and snapshots",
  usage: ["rm [-f] NAME..."],
  about: `Removes sandboxes and snapshots with their disks and credentials. A running sandbox gets two seconds to clean up. If one
cannot be removed, rm continues with the next.`,
  options: { force: { short: "f", help: "do not fail for a name that does not exist" } },
  statuses: "0 if all were removed, 1 if some could not be removed, 125 if none could be removed.",
  examples: ["rm box twin", "rm -f box"],
  ignored: ["--volumes", "--now", "--wait"],
  takes: { some: "names of sandboxes and snapshots" },
  completes: ["sandbox"],
  async run({ node, values, positionals, host }) {
    const removed: string[] = [];
    const failures: unknown[] = [];
    for (const name of positionals)
      await node.remove(name).then(
        () => removed.push(name),
        (failure: unknown) => {
          if (values.force !== true || !isNotFound(failure)) failures.push(failure);
        },
      );
    for (const failure of failures) reportFailure(failure, values.json === true, host);
    const statusOfFailures = removed.length === 0 ? STATUS_FAILED : STATUS_NOT_AS_INTENDED;
    const status = failures.length === 0 ? 0 : statusOfFailures;
    return { text: removed.map((name) => `${name} is gone\n`).join(""), json: { removed }, status };
  },
});

function isNotFound(failure: unknown): boolean {
  return failure instanceof Error && "code" in failure && failure.code === "NOT_FOUND";
}
