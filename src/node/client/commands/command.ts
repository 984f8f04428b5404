import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type ExecExit,
  ExecExitSchema,
  type ExecStart,
  ExecStartSchema,
  type TerminalSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { checkArgs, checkOptions, checkText, fromArguments, limitOf, terminalSize, wholeNumber } from "../arguments.ts";
import { invalidOption } from "../errors/errors.ts";
import type { Names } from "../options.ts";
import { plain, type Plain } from "../plain.ts";
import { type KeepOptions, keepMessage } from "./keep.ts";

/** Size and kind of the terminal in which a command runs. */
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

/** Options of a command, for `run` and for `start`. */
export interface CommandOptions {
  /**
   * Environment variables that are set in addition to those of the session. Their values are passed unchanged. A
   * variable with the value undefined is ignored.
   */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Working directory, an absolute path. Default: the workload's directory. */
  readonly cwd?: string | undefined;
  /** User, in the form `user`, `uid`, `user:group` or `uid:gid`. Default: the workload's user. */
  readonly user?: string | undefined;
  /**
   * Run the command in a terminal of this size. In that case, `stdout` also has what the command writes to standard
   * error.
   */
  readonly terminal?: TerminalOptions | undefined;
  /**
   * Time limit of the command, in milliseconds. At the limit, the agent sends SIGTERM to the command and all its
   * descendants, and SIGKILL 2 s later; the result then has `timedOut` set to true. Default: Infinity. Both Infinity
   * and 0 mean that there is no limit.
   */
  readonly timeoutMs?: number | undefined;
}

/** Content of the message that starts a command. */
export interface CommandStart extends CommandOptions {
  /** Whether standard input is connected; if not, it is /dev/null. */
  readonly stdin?: boolean | undefined;
  readonly keep?: KeepOptions | undefined;
}

/** How a command ended (message ExecExit). */
export type CommandResult = Omit<Plain<ExecExit>, "code" | "signal" | "outputComplete"> & {
  /** Exit status, or 128 + signal number if a signal ended the command. */
  readonly exitCode: number;
  /** Name of the signal that ended the command, such as "SIGKILL"; undefined if no signal ended it. */
  readonly signal: SignalName | undefined;
  /**
   * Whether this call has received all output. False if the agent has dropped output of a kept command that this call
   * requested (see `keep.whenFull`). Also false if a background process still held an output open 20 ms after the
   * command's end; all output of the command itself was then received.
   */
  readonly outputComplete: boolean;
};

export const COMMAND: Names<CommandOptions> = { env: true, cwd: true, user: true, terminal: true, timeoutMs: true };
const KEEP_NAMES: Readonly<Record<keyof KeepOptions, true>> = {
  name: true,
  bufferBytes: true,
  whenFull: true,
  lingerMs: true,
  replaceEnded: true,
  awakeForMs: true,
};

/** Throws GuestError (INVALID_ARGUMENT) unless the arguments are an array of strings. */
function checkShape(args: unknown): void {
  if (typeof args === "string") {
    const message = `a command is an array, such as ["ls", "-l"]; to run a line with a shell, give ["sh", "-c", line]`;
    throw invalidOption("args", message);
  }
  if (typeof args === "object" && args !== null && "args" in args) {
    const message = 'a command is an array, and its options follow it: run(["ls", "-l"], { cwd: "/" })';
    throw invalidOption("args", message);
  }
  checkArgs(args);
}

/** Creates the content of the start frame. Throws GuestError (INVALID_ARGUMENT) if the command cannot be sent. */
export function startMessage(args: readonly string[], options: CommandStart): ExecStart {
  return fromArguments("the command cannot be sent", () => {
    checkShape(args);
    const { env, cwd = "", user = "", stdin = false, timeoutMs, terminal, keep } = options;
    checkOptions("keep", keep, KEEP_NAMES);
    const message = create(ExecStartSchema, {
      args: [...args],
      env: variablesOf(env),
      cwd,
      user,
      stdin,
      timeoutMs: BigInt(limitOf(timeoutMs, "timeoutMs") ?? 0),
      ...(terminal && { terminal: terminalMessage(terminal) }),
      ...(keep && { keep: keepMessage(keep) }),
    });
    for (const [index, argument] of message.args.entries()) checkText(argument, `args[${index}]`);
    for (const [name, value] of Object.entries(message.env)) checkText(`${name}=${value}`, "env");
    checkText(message.cwd, "cwd");
    checkText(message.user, "user");
    // Encode the message once now, because an encoding error during the call could not be reported to the caller of
    // `start`.
    toBinary(ExecStartSchema, message);
    return message;
  });
}

/**
 * Drops variables whose value is undefined, as node:child_process does. Throws GuestError for any other value that is
 * not a string.
 */
function variablesOf(env: CommandOptions["env"] = {}): Record<string, string> {
  const given = Object.entries(env).filter((variable): variable is [string, string] => variable[1] !== undefined);
  const wrong = given.find(([, value]) => typeof (value as unknown) !== "string");
  // Do not print the value, because it may be a secret.
  if (wrong !== undefined) throw invalidOption("env", `env has a variable that is not text: ${wrong[0]}`);
  return Object.fromEntries(given);
}

function terminalMessage({
  cols,
  rows,
  term = "",
  iutf8 = false,
}: TerminalOptions): MessageInitShape<typeof TerminalSchema> {
  return { ...terminalSize({ cols, rows }), term, iutf8 };
}

/** Converts the content of the exit frame to a CommandResult. */
export function resultOf(exit: ExecExit): CommandResult {
  const { code, signal, ...result } = plain(ExecExitSchema, exit);
  return { exitCode: code, signal: signalName(signal), ...result };
}

/** Name of a signal, such as "SIGTERM". A signal that has no name is written as "SIG" and its number, such as "SIG34". */
export type SignalName = NodeJS.Signals | `SIG${number}`;

/**
 * Names of the signals of the guest, which is Linux on x86 or Arm (signal(7)), in the order of their numbers from 1.
 * The client's own system may number signals differently.
 */
const SIGNALS: readonly string[] = (
  "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG " +
  "XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
).split(" ");

/** The largest signal number (SIGRTMAX of signal(7)). */
const LARGEST_SIGNAL = 64;

/**
 * Returns the number that a signal has in the guest. Throws GuestError (INVALID_ARGUMENT) for an unknown signal name
 * and for an invalid number. The error names the option `field`.
 */
export function signalNumber(signal: number | SignalName, field: string = "signal"): number {
  if (typeof signal === "number") return wholeNumber(signal, field);
  const number = 1 + SIGNALS.findIndex((name) => signal === `SIG${name}`);
  if (number > 0) return number;
  const unnamed = /^SIG(\d{1,2})$/.exec(signal)?.[1];
  if (unnamed !== undefined && Number(unnamed) > 0 && Number(unnamed) <= LARGEST_SIGNAL) return Number(unnamed);
  throw invalidOption(field, `${JSON.stringify(signal)} is not a signal; give a name such as SIGTERM, or a number`);
}

/** Returns the name of a signal of the guest; undefined for 0. */
function signalName(number: number): SignalName | undefined {
  return number === 0 ? undefined : (`SIG${SIGNALS[number - 1] ?? number}` as SignalName);
}
