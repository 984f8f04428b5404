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

/** A command's terminal. */
export interface TerminalOptions {
  readonly cols: number;
  readonly rows: number;
  /** Value of TERM. Default: xterm-256color. */
  readonly term?: string | undefined;
  /** The terminal edits lines as UTF-8: the erase key removes whole characters (IUTF8 of termios(3)). Default: false. */
  readonly iutf8?: boolean | undefined;
}

/** A command to run in the sandbox. */
export interface ExecCommand {
  /** Command and arguments; at least one. No shell is involved. */
  readonly args: readonly string[];
  /** Environment of the command on top of the session's, delivered unchanged. A variable that is undefined is left out. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Absolute. Default: the workload's. */
  readonly cwd?: string | undefined;
  /** `user`, `uid`, `user:group` or `uid:gid`. Default: the workload's. */
  readonly user?: string | undefined;
  /** Connect standard input. False (the default): /dev/null. A terminal always has it. */
  readonly stdin?: boolean | undefined;
  /** Run in a terminal of this size. Then `stdout` carries all output. */
  readonly terminal?: TerminalOptions | undefined;
  /** Time that the agent allows the command, in milliseconds. Default: no limit. */
  readonly timeoutMs?: number | undefined;
}

/** A command that outlives the connection of its client. */
export interface KeptCommand extends ExecCommand {
  readonly keep: KeepOptions;
}

/** How a command ended (message ExecExit). */
export type ExecResult = Omit<Plain<ExecExit>, "code"> & {
  /** Its exit status; 128 + signal where a signal ended it. */
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

/** Throws GuestError (INVALID_ARGUMENT) for a line or a list of words, which other libraries take as a command. */
export function checkShape(command: unknown): void {
  if (typeof command === "object" && !Array.isArray(command)) return;
  const message = 'a command is an object, { args: ["ls", "-l"] }; a line for a shell is { args: ["sh", "-c", line] }';
  throw invalidOption("args", message);
}

/** The start frame's content. Throws GuestError (INVALID_ARGUMENT) for what cannot be sent. */
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
    // Encode it now: later it would fail in the middle of a call.
    toBinary(ExecStartSchema, message);
    return message;
  });
}

/** Whether a command is to outlive its connection; `keep: undefined` says no more than no `keep`. */
export function isKept(command: ExecCommand | KeptCommand): command is KeptCommand {
  return "keep" in command && (command.keep as KeepOptions | undefined) !== undefined;
}

/** As node:child_process has it, which leaves out what is undefined. Throws GuestError for what is not text. */
function variablesOf(env: ExecCommand["env"] = {}): Record<string, string> {
  const given = Object.entries(env).filter((variable): variable is [string, string] => variable[1] !== undefined);
  const wrong = given.find(([, value]) => typeof (value as unknown) !== "string");
  // Its value may be a secret.
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

/** The exit frame's content. */
export function resultOf(exit: ExecExit): ExecResult {
  const { code, ...result } = plain(ExecExitSchema, exit);
  return { exitCode: code, ...result };
}

/** The name of a signal, such as "SIGTERM". */
export type SignalName = NodeJS.Signals;

/** In the order of their numbers in the guest, from 1 on: a Linux on x86 or Arm (signal(7)). This side's may differ. */
const SIGNALS: readonly string[] = (
  "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG " +
  "XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
).split(" ");

/** The number of a signal in the guest. Throws GuestError (INVALID_ARGUMENT) for anything else. */
export function signalNumber(signal: number | SignalName): number {
  if (typeof signal === "number") return wholeNumber(signal, "signal");
  const number = 1 + SIGNALS.findIndex((name) => signal === `SIG${name}`);
  if (number > 0) return number;
  throw invalidOption("signal", `${JSON.stringify(signal)} is not a signal; give a name such as SIGTERM, or a number`);
}
