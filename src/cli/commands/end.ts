import type { SignalName } from "../../client/index.ts";
import { EndExecResponseSchema } from "../../gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { type Command, defineCommand } from "../command-line.ts";
import { CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { messageObject } from "../output.ts";
import { parseDurationMs } from "../values.ts";

export const end: Command = defineCommand({
  usage: ["end [options] NAME"],
  about: `Ends a command that was started with "exec --name", with everything that it has started. One that has ended already is
forgotten: its output is gone, and its name is free.`,
  options: {
    signal: {
      type: "string",
      short: "s",
      argument: "SIGNAL",
      help: "first signal, by name or number (default SIGTERM)",
    },
    grace: {
      type: "string",
      argument: "DURATION",
      help: "time for all of it to end before SIGKILL (default 2s, at most 10m)",
    },
    "exec-id": { type: "string", argument: "ID", help: "refuse another command of that name" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, the fields of the schema (EndExecResponse): "exit" and "forgotten".`,
  statuses: "0 ended or forgotten, 125 failed.",
  examples: ["end build", "end --signal INT --grace 30s server"],
  takes: { one: "the name of one kept command" },
  async run({ values, positionals }, host) {
    const [name = ""] = positionals;
    const { signal, grace, "exec-id": execId } = values;
    const graceMs = parseDurationMs(grace, "--grace");
    using client = await openClient(values, host);
    const response = await client.endExec(name, {
      execId,
      graceMs,
      signal: signal === undefined ? undefined : signalOf(signal),
    });
    const { exit, forgotten } = response;
    const text = `${forgotten ? "forgotten" : "ended"}: code ${exit?.code ?? "unknown"}, signal ${exit?.signal ?? 0}\n`;
    return { text, json: messageObject(EndExecResponseSchema, response) };
  },
});

/** `15`, `TERM` or `SIGTERM`. The client refuses a name that is none. */
function signalOf(text: string): number | SignalName {
  if (/^\d+$/.test(text)) return Number(text);
  const name = text.toUpperCase();
  return (name.startsWith("SIG") ? name : `SIG${name}`) as SignalName;
}
