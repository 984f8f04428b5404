import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type ExecExit,
  ExecExitSchema,
  type ExecStart,
  ExecStartSchema,
  type TerminalSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { checkArgs, checkOptions, checkText, fromArguments, wholeMilliseconds, wholeNumber } from "../arguments.ts";
import { invalidOption } from "../errors.ts";
import { plain, type Plain } from "../plain.ts";
import { type KeepOptions, keepMessage } from "./keep.ts";

/** Terminal of a command. */
export interface TerminalOptions {
  readonly cols: number;
  readonly rows: number;
  /** Value of TERM. Default: xterm-256color. */
  readonly term?: string | undefined;
  /**
   * The terminal's line editing is aware of UTF-8: the erase key removes whole characters (IUTF8 of termios(3)).
   * Default: false.
   */
  readonly iutf8?: boolean | undefined;
}

/** A command to run in the sandbox. */
export interface ExecCommand {
  /** Program and arguments; at least one element. No shell is involved. */
  readonly args: readonly string[];
  /**
   * Variables to set on top of the session's environment, passed unchanged. Variables with the value undefined are
   * ignored.
   */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Working directory, an absolute path. Default: the workload's. */
  readonly cwd?: string | undefined;
  /** User, in the form `user`, `uid`, `user:group` or `uid:gid`. Default: the workload's. */
  readonly user?: string | undefined;
  /**
   * Connect standard input to the caller. If false (the default), it is /dev/null. A command in a terminal always has
   * standard input.
   */
  readonly stdin?: boolean | undefined;
  /** Run the command in a terminal of this size. Then `stdout` carries all output. */
  readonly terminal?: TerminalOptions | undefined;
  /** Time after which the agent ends the command, in milliseconds. Default: no limit. */
  readonly timeoutMs?: number | undefined;
}

/** A command that outlives its client's connection. */
export interface KeptCommand extends ExecCommand {
  readonly keep: KeepOptions;
}

/** How a command ended (message ExecExit). */
export type ExecResult = Omit<Plain<ExecExit>, "code"> & {
  /** Exit status, or 128 + signal number if a signal ended the command. */
  readonly exitCode: number;
};

const COMMAND_NAMES: Readonly<Record<keyof KeptCommand, true>> = {
  args: true,
  env: true,
  cwd: true,
  user: true,
  stdin: true,
  terminal: true,
  timeoutMs: true,
  keep: true,
};
const KEEP_NAMES: Readonly<Record<keyof KeepOptions, true>> = {
  name: true,
  bufferBytes: true,
  whenFull: true,
  lingerMs: true,
  replaceEnded: true,
  awakeForMs: true,
};

/** Throws GuestError (INVALID_ARGUMENT) for a string or an array: other libraries accept these as commands. */
export function checkShape(command: unknown): void {
  if (typeof command === "object" && !Array.isArray(command)) return;
  const message = 'a command is an object, { args: ["ls", "-l"] }; a line for a shell is { args: ["sh", "-c", line] }';
  throw invalidOption("args", message);
}

/** Creates the content of the start frame. Throws GuestError (INVALID_ARGUMENT) if the command cannot be sent. */
export function startMessage(command: ExecCommand | KeptCommand): ExecStart {
  return fromArguments("the command cannot be sent", () => {
    checkShape(command);
    checkOptions("the command", command, COMMAND_NAMES);
    checkArgs(command.args);
    if (isKept(command)) checkOptions("keep", command.keep, KEEP_NAMES);
    const { args, env, cwd = "", user = "", stdin = false, timeoutMs = 0, terminal } = command;
    const message = create(ExecStartSchema, {
      args: [...args],
      env: variablesOf(env),
      cwd,
      user,
      stdin,
      timeoutMs: BigInt(wholeMilliseconds(timeoutMs, "timeoutMs")),
      ...(terminal && { terminal: terminalMessage(terminal) }),
      ...(isKept(command) && { keep: keepMessage(command.keep) }),
    });
    for (const [index, argument] of message.args.entries()) checkText(argument, `args[${index}]`);
    for (const [name, value] of Object.entries(message.env)) checkText(`${name}=${value}`, "env");
    checkText(message.cwd, "cwd");
    checkText(message.user, "user");
    // Encode the message once now: an encoding error during the call could not be reported to the caller of `exec`.
    toBinary(ExecStartSchema, message);
    return message;
  });
}

/** Whether a command is to outlive its connection. `keep: undefined` means the same as no `keep`. */
export function isKept(command: ExecCommand | KeptCommand): command is KeptCommand {
  return "keep" in command && (command.keep as KeepOptions | undefined) !== undefined;
}

/** Drops undefined variables, as node:child_process does. Throws GuestError for a value that is not a string. */
function variablesOf(env: ExecCommand["env"] = {}): Record<string, string> {
  const given = Object.entries(env).filter((variable): variable is [string, string] => variable[1] !== undefined);
  const wrong = given.find(([, value]) => typeof (value as unknown) !== "string");
  // Do not print the value: it may be a secret.
  if (wrong !== undefined) throw invalidOption("env", `env has a variable that is not text: ${wrong[0]}`);
  return Object.fromEntries(given);
}

function terminalMessage({
  cols,
  rows,
  term = "",
  iutf8 = false,
}: TerminalOptions): MessageInitShape<typeof TerminalSchema> {
  return { cols, rows, term, iutf8 };
}

/** Converts the content of the exit frame. */
export function resultOf(exit: ExecExit): ExecResult {
  const { code, ...result } = plain(ExecExitSchema, exit);
  return { exitCode: code, ...result };
}

/** Name of a signal, such as "SIGTERM". */
export type SignalName = NodeJS.Signals;

/**
 * Signal names by number, from 1, in the guest: Linux on x86 or Arm (signal(7)). The client's own system may number
 * signals differently.
 */
const SIGNALS: readonly string[] = (
  "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG " +
  "XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
).split(" ");

/** Returns the signal's number in the guest. Throws GuestError (INVALID_ARGUMENT) if it is not a signal. */
export function signalNumber(signal: number | SignalName): number {
  if (typeof signal === "number") return wholeNumber(signal, "signal");
  const number = 1 + SIGNALS.findIndex((name) => signal === `SIG${name}`);
  if (number > 0) return number;
  throw invalidOption("signal", `${JSON.stringify(signal)} is not a signal; give a name such as SIGTERM, or a number`);
}
