import type { SessionProcess } from "../../client/index.ts";
import { type Command, defineCommand, tableText } from "../cli/index.ts";
import { CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
import {
  commandLine,
  commandWords,
  cpuTime,
  cutToWidth,
  memoryOf,
  moreWords,
  processAdvice,
  processesOf,
  processObject,
  readProcesses,
  userOf,
} from "./process-rows.ts";

const TITLES = ["PID", "PPID", "USER", "STATE", "STARTED", "CPU TIME", "MEMORY", "BELONGS TO", "COMMAND LINE"];

export const ps: Command = defineCommand({
  usage: ["ps [options] [NAME|PID...]"],
  about: `Lists the processes of a sandbox: the workload, the commands, and all processes that the workload or a command has
started. A process that outlives its command is listed, too. To list only some processes, give the NAME of a kept
command, "workload", or a PID. Requires no program in the image. Does not count as user activity.`,
  options: {
    quiet: { short: "q", help: "print process ids only" },
    "no-trunc": { help: "do not cut lines to the width of the terminal" },
    ...CONNECTION_OPTIONS,
  },
  notes: `STATE has the letters of ps(1): R running, S sleeping, D waiting in the kernel, T stopped, Z ended but not reaped.
BELONGS TO has "workload", the name of a kept command, or, for another command, the address of the client that runs it.
It is "-" for a hook, for ready_cmd, and for processes that a command left behind when it ended. If a process has no
command line, COMMAND LINE has the name of the process in brackets: the process has ended, or it is stuck.
With --json, prints one object per line, with the fields of the schema (SessionProcess): "pid", "start_ticks",
"parent_pid", "uid", "user", "state", "cpu_us", "rss_bytes", "started", "name", "args", "command_line_truncated", and
"command", which has "kind" ("workload", "kept" or "attached"), "name", "exec_id", "pid" and "client".`,
  statuses: "0 if the processes were listed, 125 if guestctl failed.",
  examples: ["ps", "ps server", "ps --json | jq -r 'select(.user == \"root\") | .pid'"],
  takes: "anything",
  advice: processAdvice,
  completes: ["exec"],
  hints: [
    ["-o --format --output", "all columns are shown; --json prints all fields as JSON"],
    ["-f --filter", 'names choose the commands: guestctl ps NAME; or filter "guestctl ps --json" with jq'],
    ["-n --last -l --latest -s --size", '"guestctl execs" lists kept commands, "guestctl ps --json" has all fields'],
  ],
  rewrite: withoutHabits,
  async run({ values, positionals }, host) {
    using client = await openClient(values, host);
    const list = await readProcesses(client);
    const processes = processesOf(list, positionals);
    const more = moreWords(list);
    const json = processes.map(processObject);
    if (values.quiet === true) return { text: processes.map(({ pid }) => `${pid}\n`).join(""), json };
    const table = tableText([TITLES, ...processes.map(cellsOf)]) + more;
    return { text: values["no-trunc"] === true ? table : cutToWidth(table, host.stdout), json };
  },
});

/**
 * Drops the options of ps(1) and of docker ps that choose all processes or more columns, because guestctl always prints
 * all processes and all columns.
 */
function withoutHabits(args: readonly string[]): readonly string[] {
  return args.filter((argument) => !/^(?:-?(?:aux|ax|auxw+|axu)|-[aAeFlw]|-ef|-eF|-A[fF]|--all)$/.test(argument));
}

function cellsOf(process: SessionProcess): readonly string[] {
  const { pid, parentPid, state, started } = process;
  return [
    String(pid),
    String(parentPid),
    userOf(process),
    state,
    started?.toISOString().replace(/\.\d{3}Z$/, "Z") ?? "-",
    cpuTime(process),
    memoryOf(process),
    commandWords(process),
    commandLine(process),
  ];
}
