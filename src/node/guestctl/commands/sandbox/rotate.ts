import { oneName, parseDurationMs, STATUS_NOT_AS_INTENDED, UsageError, type Subcommand } from "../../cli/index.ts";
import { rotationText, sandboxObject, WAIT_OPTION } from "../../sandbox/index.ts";
import { defineVerb } from "./verb.ts";

export const rotate: Subcommand = defineVerb({
  summary: "give sandboxes new certificates and tokens",
  usage: ["rotate NAME", "rotate --all [--older-than DURATION]"],
  about: `Gives running sandboxes new certificates and tokens, and tests them with a new connection. A rotation that was
interrupted is completed by the next one, or by a sweep.`,
  options: {
    all: { help: "rotate the credentials of all running sandboxes" },
    "older-than": {
      argument: "DURATION",
      help: "with --all, rotate only credentials that are older than this, such as 30d",
    },
    ...WAIT_OPTION,
  },
  statuses: "0 if all credentials were rotated, 1 if some could not be rotated, 125 if guestctl failed.",
  examples: ["rotate box", "rotate --all --older-than 30d"],
  takes: "anything",
  completes: ["sandbox"],
  async run({ node, values, positionals, signal, progress }) {
    const olderThanMs = parseDurationMs(values["older-than"], "--older-than");
    if (values.all !== true) {
      if (olderThanMs !== undefined) throw new UsageError("--older-than requires --all");
      if (positionals.length === 0) throw new UsageError("sandbox rotate requires one name, or --all");
      const name = oneName(positionals, "sandbox rotate");
      await node.rotate(name);
      return { text: `${name} has new credentials\n`, json: sandboxObject(await node.get(name)) };
    }
    if (positionals.length > 0) throw new UsageError("sandbox rotate --all takes no names");
    const report = await node.rotateAll({
      olderThanMs,
      signal,
      onProgress: (each) => progress.counts("rotate", each),
    });
    const status = report.failed.length === 0 ? 0 : STATUS_NOT_AS_INTENDED;
    return { text: rotationText(report), json: report, status };
  },
});
