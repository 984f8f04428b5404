import { KeptExecSchema } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { type CommandInfo, signalNumber } from "../../client/index.ts";
import { type Command, defineCommand, printable, tableText } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
import { keptObject } from "./schema.ts";

export const execs: Command = defineCommand({
  usage: ["execs [options]"],
  about: `Lists the kept commands of a sandbox ("exec --name") in the order of their start, including those that have ended but
were not removed with "end". Does not count as user activity.`,
  options: { quiet: { short: "q", help: "print names only" }, ...CONNECTION_OPTIONS },
  notes: `With --json, prints one object per line, with the fields of the schema (KeptExec): "name", "exec_id", "pid", "started",
"attached", "terminal", "stdout_offset", "stderr_offset", "stdin_offset", "held_bytes", "awake_left_ms",
"stdin_closed", and, once the command has ended, "exit" with the fields of "guestctl exec --json". Offsets and
times are strings.`,
  statuses: "0 if the commands were listed, 125 if guestctl failed.",
  examples: ["execs", "execs -q", "execs --json | jq -r .name"],
  hints: [["-a --all", "execs always lists all kept commands, also those that have ended"]],
  async run({ values }, host) {
    using client = await openClient(values, host);
    const kept = await client.commands.list({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
    const names = kept.map(({ name }) => `${printable(name)}\n`).join("");
    const text = values.quiet === true ? names : tableText([HEADINGS, ...kept.map(cellsOf)]);
    return { text, json: kept.map((exec) => keptObject(KeptExecSchema, exec)) };
  },
});

const HEADINGS = ["NAME", "PID", "STATE", "STARTED", "STDOUT", "STDERR", "HELD", "EXEC ID"];

function cellsOf(exec: CommandInfo): readonly string[] {
  const { name, pid, started, stdoutOffset, stderrOffset, heldBytes, execId } = exec;
  const startedAt = started?.toISOString() ?? "-";
  return [
    name,
    String(pid),
    stateOf(exec),
    startedAt,
    String(stdoutOffset),
    String(stderrOffset),
    String(heldBytes),
    execId,
  ];
}

function stateOf({ exit, attached, awakeLeftMs }: CommandInfo): string {
  if (exit === undefined) return `running${attached ? ", attached" : ""}${awakeLeftMs > 0 ? ", awake" : ""}`;
  return exit.signal === undefined ? `ended, code ${exit.exitCode}` : `ended, signal ${signalNumber(exit.signal)}`;
}
