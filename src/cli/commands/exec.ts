import type { ExecResult } from "../../client/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_HELP, CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { UsageError } from "../errors.ts";
import { STATUS_TIMED_OUT } from "../exit-status.ts";
import { attach, attachAsEvents, terminalOf } from "../session/index.ts";
import { parseDurationMs, parseVariables } from "../values.ts";
import { type Command, defineCommand } from "./command.ts";

const HELP = `Usage: guestctl exec [options] [--] COMMAND [ARG...]

Runs a command in the workload's session of a sandbox. No shell is involved unless the command is one.

  -i, --interactive       connect standard input
  -t, --tty               run in a terminal; with -i the local one is raw, follows its size, and Ctrl-C is a key
  -e, --env NAME[=VALUE]  environment of the command, repeatable; without VALUE: that of guestctl's own variable
  -w, --workdir DIR       working directory (default: the workload's)
  -u, --user USER[:GROUP] name or id (default: the workload's)
      --timeout DURATION  end the command after that time: 500ms, 5s, 2m; a bare number is milliseconds
${CONNECTION_HELP}

Signals that guestctl gets are passed on to the command; the third SIGINT gives up, and so does SIGHUP, and with -t
SIGTERM: the agent then hangs up on the command.
With --json, one object a line: started, stdout, stderr (data in base64), exit.

Exit status: the command's; 128 + signal when a signal ended it; 124 when --timeout did; 125 when guestctl or the agent
failed; 126 when the command cannot be run; 127 when there is no such command.

Examples:
  guestctl exec -- uname -a
  guestctl exec -it -- sh
  guestctl exec -i -w /srv -- tar xf - < site.tar
  guestctl exec -u app -e STAGE=test --timeout 5s -- ./check
`;

const OPTIONS = {
  interactive: { type: "boolean", short: "i" },
  tty: { type: "boolean", short: "t" },
  env: { type: "string", short: "e", multiple: true },
  workdir: { type: "string", short: "w" },
  user: { type: "string", short: "u" },
  timeout: { type: "string" },
  ...CONNECTION_OPTIONS,
} as const;

export const exec: Command = defineCommand({
  help: HELP,
  options: OPTIONS,
  takesCommand: true,
  async run({ values, positionals }, host) {
    if (positionals.length === 0) throw new UsageError("exec wants a command");
    const isInteractive = values.interactive === true;
    const isTerminal = values.tty === true;
    if (isTerminal && values.json === true) throw new UsageError("--tty and --json do not go together");
    const command = {
      args: positionals,
      env: parseVariables(values.env ?? [], host.env),
      cwd: values.workdir,
      user: values.user,
      stdin: isInteractive,
      terminal: isTerminal ? terminalOf(host) : undefined,
      timeoutMs: values.timeout === undefined ? undefined : parseDurationMs(values.timeout, "--timeout"),
    };
    const client = await openClient(values, host.env);
    try {
      // The command itself may take any time to start: an agent that does not answer has to be noticed otherwise.
      await client.health({ timeoutMs: ANSWER_TIMEOUT_MS });
      const process = client.exec(command);
      const session = { process, isInteractive, isTerminal };
      const result = await (values.json === true ? attachAsEvents(session, host) : attach(session, host));
      if (result.timedOut && values.json !== true) host.stderr.write(`guestctl: timed out after ${values.timeout}\n`);
      return statusOf(result);
    } finally {
      client.close();
    }
  },
});

/** A command that handles SIGTERM and leaves with 0 has timed out all the same. */
function statusOf({ code, timedOut }: ExecResult): number {
  return timedOut ? STATUS_TIMED_OUT : code;
}
