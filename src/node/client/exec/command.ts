import { create, toBinary } from "@bufbuild/protobuf";
import {
  type ExecExit,
  ExecExitSchema,
  type ExecStart,
  ExecStartSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { checkArgs, checkOptions, fromArguments, wholeMilliseconds, wholeNumber } from "../arguments.ts";
import { invalidOption } from "../errors.ts";
import { plain, type Plain } from "../plain.ts";
import { type KeepOptions, keepMessage } from "./keep.ts";

/** A command to run in the sandbox. */
export interface ExecCommand {
  /** Command and arguments; at least one. No shell is involved. */
  readonly args: readonly string[];
  /** Environment of the command on top of the session's, delivered unchanged. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Absolute. Default: the workload's. */
  readonly cwd?: string | undefined;
  /** `user`, `uid`, `user:group` or `uid:gid`. Default: the workload's. */
  readonly user?: string | undefined;
  /** Connect standard input. False (the default): /dev/null. A terminal always has it. */
  readonly stdin?: boolean | undefined;
  /** Run in a terminal of this size. Then `stdout` carries all output. */
  readonly terminal?: { readonly cols: number; readonly rows: number; readonly term?: string | undefined } | undefined;
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
    if ("keep" in command) checkOptions("keep", command.keep, KEEP_NAMES);
    const { args, env, cwd = "", user = "", stdin = false, timeoutMs = 0, terminal } = command;
    const message = create(ExecStartSchema, {
      args: [...args],
      env: { ...env },
      cwd,
      user,
      stdin,
      timeoutMs: BigInt(wholeMilliseconds(timeoutMs, "timeoutMs")),
      ...(terminal && { terminal: { cols: terminal.cols, rows: terminal.rows, term: terminal.term ?? "" } }),
      ...("keep" in command && { keep: keepMessage(command.keep) }),
    });
    // Encode it now: later it would fail in the middle of a call.
    toBinary(ExecStartSchema, message);
    return message;
  });
}

/** The exit frame's content. */
export function resultOf(exit: ExecExit): ExecResult {
  const { code, ...result } = plain(ExecExitSchema, exit);
  return { exitCode: code, ...result };
}

/** Signal numbers in the guest, which is a Linux on x86 or Arm (signal(7)). This side's may differ. */
const NUMBERS = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGSEGV: 11,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
  SIGCHLD: 17,
  SIGCONT: 18,
  SIGSTOP: 19,
  SIGTSTP: 20,
  SIGTTIN: 21,
  SIGTTOU: 22,
  SIGURG: 23,
  SIGXCPU: 24,
  SIGXFSZ: 25,
  SIGVTALRM: 26,
  SIGPROF: 27,
  SIGWINCH: 28,
  SIGIO: 29,
  SIGPWR: 30,
  SIGSYS: 31,
} as const;

/** The name of a signal, such as "SIGTERM". */
export type SignalName = keyof typeof NUMBERS;

/** The number of a signal in the guest. Throws GuestError (INVALID_ARGUMENT) for anything else. */
export function signalNumber(signal: number | SignalName): number {
  if (typeof signal === "number") return wholeNumber(signal, "signal");
  const number: number | undefined = Object.hasOwn(NUMBERS, signal) ? NUMBERS[signal] : undefined;
  if (number !== undefined) return number;
  throw invalidOption("signal", `${JSON.stringify(signal)} is no signal; give a name such as SIGTERM, or a number`);
}
