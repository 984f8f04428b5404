import { EndExecResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { signalNumber } from "../../client/index.ts";
import { type Command, defineCommand, parseDurationMs, parseSignal, waitedFor, withDuration } from "../cli/index.ts";
import { CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
import { keptObject } from "./schema.ts";

export const end: Command = defineCommand({
  usage: ["end [options] NAME"],
  about: `Ends a command that was started with "exec --name", with everything that it has started, and removes it: its output is
discarded, and its name is free. An attached client receives the rest of the output and the exit status. A command
that has already ended is only removed: processes that it left running continue.`,
  options: {
    signal: { short: "s", argument: "SIGNAL", help: "first signal, by name or number (default SIGTERM)" },
    grace: { argument: "DURATION", help: "time between the first signal and SIGKILL (default 2s, at most 10m)" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, "forgotten", "exit" with the fields of "guestctl exec --json", and "duration_ms".`,
  statuses: "0 if it was ended and removed, 125 if guestctl failed.",
  examples: ["end build", "end --signal INT --grace 30s server"],
  takes: { one: "the name of one kept command" },
  completes: ["exec", "nothing"],
  elsewhere: [["-t --time", "--grace 5s sets the time before SIGKILL"]],
  async run({ values, positionals }, host) {
    const [name = ""] = positionals;
    const { signal, grace } = values;
    const graceMs = parseDurationMs(grace, "--grace");
    using client = await openClient(values, host);
    const killSignal = signal === undefined ? undefined : parseSignal(signal);
    const { value: response, durationMs } = await waitedFor(`end ${name}`, host, () =>
      client.commands.end(name, { graceMs, killSignal, forget: true }),
    );
    const { exit } = response;
    const text = `ended: code ${exit?.exitCode ?? "unknown"}, signal ${exit?.signal === undefined ? 0 : signalNumber(exit.signal)}\n`;
    const json = { ...keptObject(EndExecResponseSchema, response), duration_ms: durationMs };
    return { text: withDuration(text, durationMs, host), json };
  },
});
