import { EndExecResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { type EndedCommand, signalNumber } from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  parseDurationMs,
  parseSignal,
  printable,
  waitedFor,
  withDuration,
} from "../cli/index.ts";
import { CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
import { keptObject } from "./schema.ts";

export const end: Command = defineCommand({
  usage: ["end [options] NAME"],
  about: `Ends a command that was started with "exec --name", and all processes that it has started. An attached client still
receives the rest of the output and the exit status. Then the output is discarded, and the name is free again. If the
command has already ended, the processes that it left running are ended; an agent without cgroups cannot find them, and
a warning says so.`,
  options: {
    signal: { short: "s", argument: "SIGNAL", help: "first signal, by name or number (default SIGTERM)" },
    grace: { argument: "DURATION", help: "time between the first signal and SIGKILL (default 2s, at most 10m)" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, prints one object with "forgotten", "exit" (with the fields of "guestctl exec --json"), "duration_ms" and
"leftovers_ended". If the command had already ended, "leftovers_ended" is the number of its leftover processes that the
agent has ended now; "leftovers_unknown" is true if the agent cannot find such processes.`,
  statuses: "0 if the command was ended and removed, 125 if guestctl failed.",
  examples: ["end build", "end --signal INT --grace 30s server"],
  takes: { one: "the name of one kept command" },
  completes: ["exec", "nothing"],
  hints: [["-t --time", "--grace 5s sets the time before SIGKILL"]],
  async run({ values, positionals }, host) {
    const [name = ""] = positionals;
    const { signal, grace } = values;
    const graceMs = parseDurationMs(grace, "--grace");
    using client = await openClient(values, host);
    const killSignal = signal === undefined ? undefined : parseSignal(signal);
    const { value: response, durationMs } = await waitedFor(`end ${name}`, host, () =>
      client.commands.end(name, { graceMs, killSignal, forget: true, leftovers: true }),
    );
    const { exit } = response;
    const warning = leftoversWarning(name, response);
    if (warning !== undefined) host.stderr.write(`guestctl: warning: ${printable(warning)}\n`);
    const { leftoversEnded = 0 } = response;
    const leftovers =
      leftoversEnded === 0
        ? ""
        : `; ended ${leftoversEnded} ${leftoversEnded === 1 ? "process" : "processes"} that it had left running`;
    const number = exit?.signal === undefined ? 0 : signalNumber(exit.signal);
    const text = `ended: code ${exit?.exitCode ?? "unknown"}, signal ${number}${leftovers}\n`;
    const json = { ...keptObject(EndExecResponseSchema, response), duration_ms: durationMs };
    return { text: withDuration(text, durationMs, host), json };
  },
});

/** Says why processes that the command started may still be running; undefined if they have ended. */
function leftoversWarning(name: string, { leftoversEnded, leftoversUnknown }: EndedCommand): string | undefined {
  const ways = `"guestctl ps" lists all processes, "guestctl kill PID" signals one`;
  if (leftoversUnknown)
    return `processes that ${name} left running may continue: the agent has no cgroups, so it cannot find such processes; ${ways}`;
  if (leftoversEnded !== undefined) return undefined;
  return `processes that ${name} left running may continue: an agent older than 0.4.0 does not end the leftovers of a command that had already ended; ${ways}`;
}
