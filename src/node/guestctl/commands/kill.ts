import type { ProcessList, SessionProcess } from "../../client/index.ts";
import { type Command, defineCommand, parseSignal, UsageError } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection/index.ts";
import { processAdvice, readProcesses } from "./process-rows.ts";

/** Signals to offer in the shell completion. */
const SIGNALS = ["HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP"] as const;

export const kill: Command = defineCommand({
  usage: ["kill [options] NAME|PID [SIGNAL]"],
  about: `Sends a signal. NAME is a kept command ("exec --name"): all processes of its process group get the signal. No client
needs to be attached. PID is a process of the sandbox's workload or commands, as listed by "guestctl ps": only this
process gets the signal. The processes may ignore the signal; "guestctl end" ends a kept command with everything that
it has started.`,
  options: {
    signal: {
      short: "s",
      argument: "SIGNAL",
      completes: SIGNALS,
      help: "name or number, such as HUP, SIGHUP or 1 (default SIGTERM); -9 and -HUP are accepted",
    },
    ...CONNECTION_OPTIONS,
  },
  notes: `A number is a process id. guestctl first looks up the start time of that process, so that a later process with the same
id never gets the signal.
With --json, one object: "name", or "pid" and "start_ticks".`,
  statuses: "0 if the signal was sent, 125 if guestctl failed.",
  examples: ["kill server HUP", "kill -9 build", "kill -s TERM 4711"],
  takes: "anything",
  completes: ["exec", "nothing"],
  hints: [["-l -L --list --table", "signals have the names and numbers of signal(7): HUP, INT, TERM, KILL, …"]],
  rewrite: (args) => args.flatMap(signalOption),
  advice: (error) =>
    error.reason === "EXEC_UNKNOWN" ? '"guestctl execs" lists the kept commands' : processAdvice(error),
  async run({ values, positionals }, host) {
    const [target, signal = values.signal ?? "TERM", ...more] = positionals;
    if (target === undefined || more.length > 0)
      throw new UsageError("kill requires the name of a kept command or a process id, and one signal at most");
    using client = await openClient(values, host);
    const number = parseSignal(signal);
    const process = /^\d+$/.test(target) ? processWith(target, await readProcesses(client)) : undefined;
    const options = { requestTimeoutMs: ANSWER_TIMEOUT_MS };
    if (process === undefined) {
      await client.commands.signal(target, number, options);
      return { text: "", json: { name: target } };
    }
    await client.commands.signalProcess(process, number, options);
    return { text: "", json: { pid: process.pid, start_ticks: String(process.startTicks) } };
  },
});

/**
 * Finds the process with this id. Undefined if the target is the name of a kept command. Throws UsageError if the
 * target is neither of these, or both.
 */
function processWith(target: string, { processes }: ProcessList): SessionProcess | undefined {
  const process = processes.find(({ pid }) => pid === Number(target));
  const isName = processes.some(({ command }) => command?.kind === "kept" && command.name === target);
  if (process !== undefined && isName)
    throw new UsageError(
      `${target} is both a process id and the name of a kept command; to end the command: guestctl end ${target}`,
    );
  if (process === undefined && !isName)
    throw new UsageError(
      `no process ${target} belongs to the sandbox's workload or commands; "guestctl ps" lists those that do`,
    );
  return process;
}

/** Rewrites `-9` and `-HUP` of kill(1) to --signal. */
function signalOption(argument: string): readonly string[] {
  const [, signal] = /^-(\d+|(?:SIG)?[A-Z][A-Z0-9]{2,})$/.exec(argument) ?? [];
  return signal === undefined ? [argument] : ["--signal", signal];
}
