import type { ExecResult } from "../../client/index.ts";
import { type Command, defineCommand } from "../command-line.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { STATUS_TIMED_OUT, UsageError } from "../errors.ts";
import { attach, attachAsEvents } from "../session/attach.ts";
import { parseEscapeChar } from "../session/keyboard.ts";
import { terminalOf } from "../session/terminal.ts";
import { parseDurationMs, parseVariables } from "../values.ts";

/** That of ssh(1). */
const DEFAULT_ESCAPE = "~";
/** `-tt`, as with ssh(1). */
const FORCED = 2;

export const exec: Command = defineCommand({
  usage: ["exec [options] [--] COMMAND [ARG...]"],
  about: "Runs a command in the workload's session of a sandbox. No shell is involved unless the command is one.",
  options: {
    interactive: { type: "boolean", short: "i", help: "connect standard input" },
    tty: {
      type: "boolean",
      short: "t",
      multiple: true,
      help: "run in a terminal; with -i the local one is raw, follows its size, and Ctrl-C is a key; twice (-itt): although standard input is no terminal",
    },
    "escape-char": {
      type: "string",
      argument: "CHAR",
      help: 'escape character of -it, such as ~ (the default), ^] or "none"',
      completes: ["none"],
    },
    env: {
      type: "string",
      short: "e",
      multiple: true,
      argument: "NAME[=VALUE]",
      help: "environment of the command, repeatable; without VALUE: that of guestctl's own variable",
    },
    workdir: { type: "string", short: "w", argument: "DIR", help: "working directory (default: the workload's)" },
    user: { type: "string", short: "u", argument: "USER[:GROUP]", help: "name or id (default: the workload's)" },
    timeout: {
      type: "string",
      argument: "DURATION",
      help: "end the command after that time: 500ms, 5s, 2m",
    },
    ...CONNECTION_OPTIONS,
  },
  notes: `With -it, the escape character at the start of a line makes the next key one for guestctl: "." leaves, Ctrl-Z suspends
guestctl, "?" shows this list, and the character itself is sent. Leaving hangs up on the command.
Signals that guestctl gets are passed on to the command; the third SIGINT gives up, and so does SIGHUP, and with -t
SIGTERM: the agent then hangs up on the command.
With --json, one object a line: "event" is started ("pid"), stdout or stderr ("data" in base64), and at last exit
("code", "signal", "core_dumped", "timed_out", "oom_killed", "output_complete", "duration_ms").`,
  statuses: `the command's; 128 + signal when a signal ended it; 124 when --timeout did; 125 when guestctl or the agent
failed, and after the escape key; 126 when the command cannot be run; 127 when there is no such command.`,
  examples: [
    "exec -- uname -a",
    "exec -it -- sh",
    "exec -i -w /srv -- tar xf - < site.tar",
    "exec -u app -e STAGE=test --timeout 5s -- ./check",
  ],
  completes: ["nothing"],
  takesCommand: true,
  async run({ values, positionals }, host) {
    if (positionals.length === 0) throw new UsageError("exec wants a command");
    const isInteractive = values.interactive === true;
    const ttyCount = values.tty?.length ?? 0;
    const isTerminal = ttyCount > 0;
    if (isTerminal && values.json === true) throw new UsageError("--tty and --json do not go together");
    if (isTerminal && isInteractive && ttyCount < FORCED && !host.stdin.isTTY) {
      throw new UsageError("standard input is no terminal; leave -t out, or ask for a terminal all the same with -itt");
    }
    const escape = parseEscapeChar(values["escape-char"] ?? DEFAULT_ESCAPE, "--escape-char");
    const command = {
      args: positionals,
      env: parseVariables(values.env ?? [], host.env),
      cwd: values.workdir,
      user: values.user,
      stdin: isInteractive,
      terminal: isTerminal ? terminalOf(host) : undefined,
      timeoutMs: values.timeout === undefined ? undefined : parseDurationMs(values.timeout, "--timeout"),
    };
    using client = await openClient(values, host);
    // The command may take any time to start, so this finds out first whether the agent answers.
    await client.health({ deadlineMs: ANSWER_TIMEOUT_MS });
    const process = client.exec(command);
    const session = { process, isInteractive, isTerminal, escape };
    const result = await (values.json === true ? attachAsEvents(session, host) : attach(session, host));
    if (result.timedOut && values.json !== true) host.stderr.write(`guestctl: timed out after ${values.timeout}\n`);
    return statusOf(result);
  },
});

/** A command that handles SIGTERM and leaves with 0 has timed out all the same. */
function statusOf({ code, timedOut }: ExecResult): number {
  return timedOut ? STATUS_TIMED_OUT : code;
}
