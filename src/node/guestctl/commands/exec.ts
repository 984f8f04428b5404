import { randomBytes } from "node:crypto";
import { posix } from "node:path";
import type { GuestError, KeepOptions, CommandInfo, KeptProcess } from "../../client/index.ts";
import {
  type Answer,
  type Command,
  checkInput,
  defineCommand,
  type Parsed,
  parseDurationMs,
  parseSizeBytes,
  readVariables,
  printable,
  quoted,
  UsageError,
} from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, connector } from "../connection/index.ts";
import { isReason } from "../copy/index.ts";
import {
  ESCAPE_OPTION,
  FORCED,
  openKept,
  parseEscapeChar,
  runAttached,
  attachToKept,
  terminalOf,
} from "../terminal/index.ts";

const OPTIONS = {
  interactive: { short: "i", help: "connect standard input" },
  tty: {
    short: "t",
    multiple: true,
    help: "run the command in a pseudo-terminal; -it connects it to the local terminal, -tt makes one even if standard input is not a terminal",
  },
  ...ESCAPE_OPTION,
  env: {
    short: "e",
    multiple: true,
    argument: "NAME[=VALUE]",
    help: "set a variable of the command; NAME alone copies the variable from guestctl's environment",
  },
  "env-file": {
    multiple: true,
    argument: "FILE",
    completes: "file",
    help: "read environment variables from a file with one NAME=VALUE in each line; --env takes precedence",
  },
  workdir: { short: "w", argument: "DIR", help: "working directory (default: the workload's)" },
  user: {
    short: "u",
    argument: "USER[:GROUP]",
    help: "name or id of the user that runs the command (default: the workload's)",
  },
  timeout: { argument: "DURATION", help: "end the command after this time: 500ms, 5s, 2m" },
  name: {
    argument: "NAME",
    help: "run a kept command with this name: if the connection is lost, the command continues, and guestctl reconnects",
  },
  "attach-or-start": {
    short: "A",
    help: "with --name: attach if a command of that name is running, whatever COMMAND is; otherwise start COMMAND",
  },
  detach: {
    short: "d",
    help: "start the command, print its name and exit; without --name guestctl chooses a name",
  },
  buffer: {
    argument: "SIZE",
    help: "kept command: size of the buffer for unread output (default 1M, at most 16M)",
  },
  "when-full": {
    argument: "WHAT",
    help: 'kept command: "drop-oldest" discards the oldest output when the buffer is full (default), "block" blocks the command',
    completes: ["drop-oldest", "block"],
  },
  "awake-for": {
    argument: "DURATION",
    help: "kept command: while it runs, the sandbox does not count as idle, but for at most this long",
  },
  linger: {
    argument: "DURATION",
    help: "kept command: how long its output and exit status stay available after it has ended (default 10m)",
  },
  replace: { help: "kept command: replace a command of the same name that has ended" },
  ...CONNECTION_OPTIONS,
} as const;

export const exec: Command = defineCommand({
  usage: ["exec [options] [--] COMMAND [ARG...]"],
  about: "Runs a command in the session of a sandbox's workload. No shell runs the command, unless COMMAND is a shell.",
  options: OPTIONS,
  notes: `With -it, type the escape character (default ~) at the start of a line, and then a key: "." disconnects, Ctrl-Z
suspends guestctl, "?" lists the keys, and a second escape character is sent to the command. When guestctl disconnects,
the agent sends SIGHUP to the command. A command with --name continues instead; if the connection is lost, for example
by a snapshot, guestctl reconnects. "guestctl attach NAME" attaches to it from anywhere.
guestctl forwards signals to the command. If SIGINT ends the command, guestctl ends by SIGINT, too. Some signals are not
forwarded, but end guestctl: the third SIGINT, SIGHUP, and with -t also SIGTERM. The agent then sends SIGHUP to the
command, unless it has a --name.
With --json, prints one object per line. Its "event" is "started" (with "pid"), "stdout" or "stderr" (with "data" in
base64), and finally "exit" (with "exit_code", "signal", "core_dumped", "timed_out", "oom_killed", "output_complete",
"duration_ms", and "usage", the schema's CommandUsage). With --name, "started" also has "exec_id", and there are the
events "disconnected" (with "message"), "reconnected", and "gap" (with "stream", "offset", "bytes"). With -d, prints
only one object, with "name", "exec_id" and "pid".`,
  statuses: `the command's own status; 128 + N if signal N ended it; 124 if --timeout ended it; 125 if guestctl or the
agent failed, or you pressed the escape key; 126 if the command cannot be run; 127 if there is no such
command.`,
  examples: [
    "exec -- uname -a",
    "exec --sandbox box -- uname -a",
    "exec -it -- sh",
    "exec -i -w /srv -- tar xf - < site.tar",
    "exec -u app -e STAGE=test --timeout 5s -- ./check",
    "exec --name build -d -- make -j4",
    "exec -d -- ./server",
    "exec -it --name shell --attach-or-start -- bash",
  ],
  takes: { some: "a command; to run a line in a shell, write: guestctl exec -- sh -c LINE" },
  takesCommand: true,
  hints: [
    ["--detach-keys", "--escape-char ^] sets the escape key"],
    ["--stdin", "-i connects standard input"],
    ["-l", "-u USER runs as another user"],
    ["-f --filename", "--sandbox NAME chooses a sandbox; COMMAND follows the options"],
    ["--pod-running-timeout", "--connect-timeout DURATION limits the wait for a connection"],
    ["--cap-add --cap-drop", "every command has the capabilities of the agent; to run it as another user, use -u USER"],
    ["-p", "to forward a port: guestctl forward 8080:80"],
    ["-n", "without -i standard input is /dev/null; --sandbox NAME chooses a sandbox"],
    ["-q --quiet", "leave the option out: exec prints only the command's output, unless something fails"],
    ["--privileged", "every command has the capabilities of the agent; to run it as root, use -u root"],
    ["--rm", "leave the option out: a command that has ended leaves nothing behind"],
  ],
  advice: adviceFor,
  async run({ values, positionals }, host) {
    const isInteractive = values.interactive === true;
    const ttyCount = values.tty?.length ?? 0;
    const isTerminal = ttyCount > 0;
    if (isTerminal && values.json === true) throw new UsageError("--tty and --json cannot be combined");
    if (isTerminal && isInteractive && ttyCount < FORCED && !host.stdin.isTTY) {
      throw new UsageError("standard input is not a terminal; omit -t, or force a terminal with -itt");
    }
    if (isInteractive) checkInput(host);
    const escape = parseEscapeChar(values["escape-char"]);
    const keep = keepOf(values, positionals);
    const command = {
      env: await readVariables(values["env-file"] ?? [], values.env ?? [], host.env),
      cwd: values.workdir,
      user: values.user,
      stdin: isInteractive,
      terminal: isTerminal ? terminalOf(host) : undefined,
      timeoutMs: parseDurationMs(values.timeout, "--timeout"),
      encoding: "buffer",
    } as const;
    const connection = await connector(values, host);
    using client = connection.connect();
    const isForPrograms = values.json === true;
    // A command has no time limit, so first check that the agent answers.
    await client.health({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
    const attachment = { isInteractive, isTerminal, escape, timeout: values.timeout };
    if (keep === undefined)
      return await runAttached({ ...attachment, process: client.start(positionals, command) }, isForPrograms, host);
    const { name } = keep;
    const isDetached = values.detach === true;
    const taken = async (): Promise<Answer | number | undefined> => {
      const kept = await client.commands.list({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
      const running = kept.find((each) => each.name === name && each.exit === undefined);
      if (running === undefined || isDetached) return running && started(running);
      return attachToKept({ exec: running, isInteractive, escape, isForPrograms }, client, connection, host);
    };
    const isTakenFirst = values["attach-or-start"] === true;
    const before = isTakenFirst ? await taken() : undefined;
    if (before !== undefined) return before;
    try {
      if (isDetached) return await detach(client.start(positionals, { ...command, keep, forget: false }), name);
      const process = openKept({ name, isTerminal, isForPrograms }, connection, host, (options) =>
        client.start(positionals, { ...command, keep, ...options }),
      );
      return await runAttached({ ...attachment, process, kept: { name, process } }, isForPrograms, host);
    } catch (error) {
      // If another client was first to start a command of that name, use that command.
      const after = isTakenFirst && isReason(error, "EXEC_NAME_IN_USE") ? await taken() : undefined;
      if (after === undefined) throw error;
      return after;
    }
  },
});

/** The options for a kept command; undefined if the command is not kept. Throws UsageError. */
function keepOf(values: Parsed<typeof OPTIONS>["values"], [command = ""]: readonly string[]): KeepOptions | undefined {
  const { buffer, "when-full": whenFull = "drop-oldest", linger, replace, "attach-or-start": isAttachOrStart } = values;
  const { "awake-for": awakeFor } = values;
  if (isAttachOrStart === true && values.name === undefined) throw new UsageError("--attach-or-start requires --name");
  const name = values.name ?? (values.detach === true ? madeUpName(command) : undefined);
  if (name === undefined) {
    const orphan = (["buffer", "when-full", "linger", "replace", "awake-for"] as const).find((each) => values[each]);
    if (orphan !== undefined) throw new UsageError(`--${orphan} requires --name or -d`);
    return undefined;
  }
  if (whenFull !== "drop-oldest" && whenFull !== "block")
    throw new UsageError('--when-full requires "drop-oldest" or "block"');
  return {
    name,
    bufferBytes: parseSizeBytes(buffer, "--buffer"),
    whenFull,
    lingerMs: parseDurationMs(linger, "--linger"),
    awakeForMs: parseDurationMs(awakeFor, "--awake-for"),
    // With --attach-or-start, the new command takes over the name of a command that has ended.
    replaceEnded: replace === true || isAttachOrStart === true,
  };
}

/** Generates a name for a detached command: the program's name and four hex digits, such as `make-3f9a`. */
function madeUpName(command: string): string {
  const base = posix
    .basename(command)
    .replaceAll(/[^\w.-]/g, "")
    .slice(0, 32);
  return `${base === "" ? "exec" : base}-${randomBytes(2).toString("hex")}`;
}

/**
 * Gives advice about a command that was not found, if the user probably meant something else, such as a line for a
 * shell.
 */
function adviceFor({ reason }: GuestError, [command = "", ...args]: readonly string[]): string | undefined {
  // Also advise after EXEC_PERMISSION_DENIED (EACCES): if the user cannot access a directory of PATH, every unknown
  // command fails with this reason.
  if (reason !== "EXEC_NOT_FOUND" && reason !== "EXEC_PERMISSION_DENIED") return undefined;
  if (/\s/.test(command) && args.length === 0 && reason === "EXEC_NOT_FOUND") {
    return `exec does not start a shell; to run a whole line in one: guestctl exec -- sh -c ${quoted(command)}`;
  }
  const meant = args[args.indexOf("--") + 1];
  // kubectl accepts the kind of an object before its name, such as pod/NAME.
  const sandbox = command.replace(/^(?:pods?|po|deploy(?:ment)?|sts|statefulset|job|svc|service)\//, "");
  if (sandbox.includes("/") || meant === undefined) return undefined;
  return `if ${printable(sandbox)} is a sandbox: guestctl exec --sandbox ${quoted(printable(sandbox))} -- ${quoted(printable(meant))}`;
}

/** Detaches from a command as soon as it is running, and returns its name and id for the output. */
async function detach(process: KeptProcess<Buffer>, name: string): Promise<Answer> {
  const { execId, pid } = await process.attached;
  await process.detach();
  return started({ name, execId, pid });
}

function started({ name, execId, pid }: Pick<CommandInfo, "name" | "execId" | "pid">): Answer {
  return { text: `${name}\n`, json: { name, exec_id: execId, pid } };
}
