import { type Command, defineCommand, parseSignal, UsageError } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../target/index.ts";

/** Signals to offer in the shell completion. */
const SIGNALS = ["HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP"] as const;

export const kill: Command = defineCommand({
  usage: ["kill [options] NAME [SIGNAL]"],
  about: `Sends a signal to the process group of a command that was started with "exec --name", attached or not. The command may
ignore the signal; "guestctl end" ends a command with everything that it has started.`,
  options: {
    signal: {
      short: "s",
      argument: "SIGNAL",
      completes: SIGNALS,
      help: "name or number, such as HUP, SIGHUP or 1 (default SIGTERM); -9 and -HUP are accepted",
    },
    ...CONNECTION_OPTIONS,
  },
  notes: 'With --json, one object: "name".',
  statuses: "0 sent, 125 failed.",
  examples: ["kill server HUP", "kill -9 build"],
  takes: "anything",
  completes: ["exec", "nothing"],
  rewrite: (args) => args.flatMap(signalOption),
  advice: ({ reason }, [name = ""]) =>
    reason === "EXEC_UNKNOWN" && /^\d+$/.test(name) ? `to signal a process: guestctl exec -- kill ${name}` : undefined,
  async run({ values, positionals }, host) {
    const [name, signal = values.signal ?? "TERM", ...more] = positionals;
    if (name === undefined || more.length > 0) throw new UsageError("kill requires one name, and one signal at most");
    using client = await openClient(values, host);
    await client.commands.signal(name, parseSignal(signal), { requestTimeoutMs: ANSWER_TIMEOUT_MS });
    return { text: "", json: { name } };
  },
});

/** Rewrites `-9` and `-HUP` of kill(1) to --signal. */
function signalOption(argument: string): readonly string[] {
  const [, signal] = /^-(\d+|(?:SIG)?[A-Z][A-Z0-9]{2,})$/.exec(argument) ?? [];
  return signal === undefined ? [argument] : ["--signal", signal];
}
