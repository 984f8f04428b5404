import { ExecSessions, ListProcessesResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { checkOptions, wholeMilliseconds, wholeNumber } from "../arguments.ts";
import type { CallOptions, Channel } from "../grpc/channel.ts";
import {
  type CommandInfo,
  commandInfoOf,
  type EndedCommand,
  endedCommandOf,
  type ProcessList,
  type SessionProcess,
} from "../lifecycle/messages.ts";
import { CALL, type Names } from "../options.ts";
import { plain } from "../plain.ts";
import { TimeLimit } from "../time-limit.ts";
import { COMMAND, type CommandOptions, type SignalName, signalNumber, startMessage } from "./command.ts";
import {
  ATTACH,
  attachMessage,
  type AttachOptions,
  type KeepOptions,
  KEPT,
  type KeptOptions,
  LISTENERS,
  WORKLOAD_OUTPUT,
  type WorkloadOutputOptions,
} from "./keep.ts";
import type { KeptParts } from "./kept-state.ts";
import { KeptProcess, type WorkloadOutput } from "./kept-process.ts";
import type { RunResult } from "./command-error.ts";
import { GuestProcess, type ProcessParts } from "./process.ts";
import { type RunOptions, type RunSettings, runToEnd } from "./run.ts";
import { isTextIn, type OutputListeners, readersOf, type StdioOptions, stdioOf } from "./stdio.ts";
import { ExecCall } from "./wire.ts";

/** Options of a command that `start` starts. */
interface ProcessOptions extends StdioOptions {
  /**
   * Connect the command's standard input to the `stdin` of the returned process. Default: false, so that standard input
   * is /dev/null. A command in a terminal always has standard input.
   */
  readonly stdin?: boolean | undefined;
  /**
   * The whole content of standard input. Text is sent as UTF-8. Default: undefined; the option `stdin` then decides
   * whether the command has standard input.
   */
  readonly input?: Uint8Array | string | undefined;
  /** Make `wait` reject with CommandError unless the exit code is 0. Default: false. */
  readonly check?: boolean | undefined;
}

/**
 * Options of `start`. The library reads each output that has a callback. The caller must read every other output, or
 * set it to "ignore" in `stdio`.
 */
export interface StartOptions<Output extends string | Buffer = string>
  extends CommandOptions, CallOptions, ProcessOptions, OutputListeners<Output> {
  /**
   * "utf8" (default): the output streams and the callbacks receive text, in which U+FFFD replaces invalid bytes;
   * characters are never split. "buffer": they receive bytes.
   */
  readonly encoding?: (Output extends string ? "utf8" : "buffer") | undefined;
  readonly keep?: undefined;
}

/** Options of `start` for a command that outlives its client's connection. */
export interface KeptStartOptions<Output extends string | Buffer = string>
  extends CommandOptions, KeptOptions, ProcessOptions, OutputListeners<Output> {
  readonly encoding?: StartOptions<Output>["encoding"];
  /**
   * To lose no output, set `whenFull: "block"`: by default, the agent drops the oldest output if the command writes
   * faster than the caller reads, and `lines()` then yields broken lines.
   */
  readonly keep: KeepOptions;
}

/** Options of `commands.end`. */
export interface EndCommandOptions extends CallOptions {
  /** Act only on the command with this `execId`. Default: the command that has the name at the time of the call. */
  readonly execId?: string | undefined;
  /** Signal to send first: its name, or its number in the guest. Default: SIGTERM. */
  readonly killSignal?: number | SignalName | undefined;
  /**
   * How long the agent waits for the whole process tree to end before it sends SIGKILL, in milliseconds; at most 10
   * min. Default: 2 s.
   */
  readonly graceMs?: number | undefined;
  /** Forget the command when it has ended: delete its output and free its name. Default: false. */
  readonly forget?: boolean | undefined;
  /**
   * If the command has already ended, also end its leftovers, which are the processes that it left running, and then
   * forget the command. The agent returns the number of ended leftovers in `leftoversEnded`. An agent without cgroups
   * cannot find leftovers: they continue, and `leftoversUnknown` of the result is true. Agents before 0.4.0 ignore this
   * option and return neither field. Default: false.
   */
  readonly leftovers?: boolean | undefined;
}

/** Options of `commands.signal`, which sends a signal to a kept command. */
export interface SignalCommandOptions extends CallOptions {
  /** Act only on the command with this `execId`. Default: the command that has the name at the time of the call. */
  readonly execId?: string | undefined;
}

/** The options of any overload of `start`. */
export type AnyStartOptions = StartOptions | StartOptions<Buffer> | KeptStartOptions | KeptStartOptions<Buffer>;

const PROCESS: Names<ProcessOptions> = { stdin: true, input: true, check: true, stdio: true };
const START: Names<StartOptions> = { ...COMMAND, ...CALL, ...PROCESS, ...LISTENERS, encoding: true, keep: true };
const KEPT_START: Names<KeptStartOptions> = {
  ...COMMAND,
  ...KEPT,
  ...PROCESS,
  ...LISTENERS,
  encoding: true,
  keep: true,
};
const RUN: Names<RunOptions> = {
  ...COMMAND,
  ...KEPT,
  input: true,
  keep: true,
  check: true,
  encoding: true,
  maxOutputBytes: true,
  stdio: true,
  ...LISTENERS,
};
const END: Names<EndCommandOptions> = {
  ...CALL,
  execId: true,
  graceMs: true,
  forget: true,
  killSignal: true,
  leftovers: true,
};
const SIGNAL: Names<SignalCommandOptions> = { ...CALL, execId: true };

/** Whether a command is to outlive its connection. `keep: undefined` means the same as no `keep`. */
function isKept(options: AnyStartOptions | null): options is KeptStartOptions | KeptStartOptions<Buffer> {
  return options?.keep !== undefined;
}

/** Returns the readers of a command's outputs, and whether the outputs are text. */
function outputsOf(
  options: StdioOptions & OutputListeners<never> & { readonly encoding?: "utf8" | "buffer" | undefined },
): Pick<ProcessParts, "readers" | "isText"> {
  const isText = isTextIn(options.encoding);
  return { readers: readersOf(options, !isText), isText };
}

/** Returns the channel for a call that outlives its connection, and the function that reconnects. */
export type Redial = (options: Pick<KeptOptions, "resume">) => Pick<KeptParts, "channel" | "dial" | "alwaysDials">;

/**
 * Runs commands in the sandbox, and manages kept commands, which outlive their connection. Each method rejects with
 * GuestError.
 */
export class Commands {
  readonly #channel: Channel;
  readonly #redial: Redial;

  constructor(channel: Channel, redial: Redial) {
    this.#channel = channel;
    this.#redial = redial;
  }

  /** Runs a command to its end and collects its output as bytes. */
  run(
    args: readonly string[],
    options: RunOptions<Buffer> & { readonly encoding: "buffer" },
  ): Promise<RunResult<Buffer>>;
  /**
   * Runs a command to its end and collects its output as text. Resolves with the result however the command ended; with
   * `check`, rejects unless its exit code is 0. The array contains the program and its arguments; no shell is
   * involved.
   */
  run(args: readonly string[], options?: RunOptions): Promise<RunResult>;
  async run(
    args: readonly string[],
    options: RunOptions | RunOptions<Buffer> = {},
  ): Promise<RunResult<string | Buffer>> {
    checkOptions("the options of run()", options, RUN);
    const { check: _, encoding: _1, maxOutputBytes: _2, onStdout: _3, onStderr: _4, ...start } = options;
    return runToEnd(args, (readers) => this.#start(args, start, { readers, isText: false }), options);
  }

  /** Starts a command that outlives its connection, and whose output is bytes. */
  start(
    args: readonly string[],
    options: KeptStartOptions<Buffer> & { readonly encoding: "buffer" },
  ): KeptProcess<Buffer>;
  /** Starts a command that outlives its connection. The returned process has the command's streams and result. */
  start(args: readonly string[], options: KeptStartOptions): KeptProcess;
  /** Starts a command whose output is bytes. */
  start(args: readonly string[], options: StartOptions<Buffer> & { readonly encoding: "buffer" }): GuestProcess<Buffer>;
  /**
   * Starts a command. The returned process has the command's streams and result. The array contains the program and its
   * arguments; no shell is involved. Throws GuestError if the command cannot be sent.
   */
  start(args: readonly string[], options?: StartOptions): GuestProcess;
  start(args: readonly string[], options: AnyStartOptions = {}): GuestProcess | GuestProcess<Buffer> {
    checkOptions("the options of start()", options, isKept(options) ? KEPT_START : START);
    const { check = false, encoding, onStdout: _, onStderr: _1, ...start } = options;
    return this.#start(args, start, {
      ...outputsOf({ ...options, encoding }),
      checked: check ? args : undefined,
    });
  }

  /** Attaches to a kept command, and reads its output as bytes. */
  attach(name: string, options: AttachOptions<Buffer> & { readonly encoding: "buffer" }): KeptProcess<Buffer>;
  /**
   * Attaches to a kept command, whether it is still running or has ended. If another call was attached to the command,
   * that call fails with EXEC_TAKEN_OVER. If no kept command has the name, `attached` and `wait()` reject with
   * EXEC_UNKNOWN.
   */
  attach(name: string, options?: AttachOptions): KeptProcess;
  attach(name: string, options: AttachOptions | AttachOptions<Buffer> = {}): KeptProcess | KeptProcess<Buffer> {
    checkOptions("the options of attach()", options, ATTACH);
    const first = { case: "attach", value: attachMessage(name, options) } as const;
    return this.#kept({ name, first, options }, { ...outputsOf(options), hasStdin: true });
  }

  /** Reads the workload's output as bytes. */
  workloadOutput(options: WorkloadOutputOptions<Buffer> & { readonly encoding: "buffer" }): WorkloadOutput<Buffer>;
  /**
   * Reads the workload's output. The agent keeps this output only if `Process.output` of the workload's spec says so;
   * otherwise the call fails with WORKLOAD_OUTPUT_NOT_KEPT. Read both `stdout` and `stderr`, as with a kept command.
   * Several readers can read at the same time. A slow reader never slows the workload down.
   */
  workloadOutput(options?: WorkloadOutputOptions): WorkloadOutput;
  workloadOutput(
    options: WorkloadOutputOptions | WorkloadOutputOptions<Buffer> = {},
  ): WorkloadOutput | WorkloadOutput<Buffer> {
    checkOptions("the options of workloadOutput()", options, WORKLOAD_OUTPUT);
    const first = { case: "attach", value: attachMessage(undefined, options) } as const;
    // Do not acknowledge this output: the agent drops its oldest bytes even if no client has read them, so an
    // acknowledgement would have no effect.
    return this.#kept(
      { name: "", first, options: { ...options, acknowledge: "manual", forget: false } },
      { ...outputsOf(options), hasStdin: false },
    );
  }

  /** Lists the kept commands in the order in which they were started. */
  async list(options?: CallOptions): Promise<CommandInfo[]> {
    checkOptions("the options of list()", options, CALL);
    return (await this.#channel.question(ExecSessions.method.listExecs, {}, options)).execs.map(commandInfoOf);
  }

  /**
   * Ends a kept command with its whole process tree: the agent sends a signal, waits for the grace period, and then
   * sends SIGKILL. If the command has ended already, makes the agent forget it.
   */
  async end(name: string, options: EndCommandOptions = {}): Promise<EndedCommand> {
    checkOptions("the options of end()", options, END);
    const { execId = "", killSignal = 0, graceMs = 0, forget = false, leftovers = false, ...call } = options;
    const request = {
      name,
      execId,
      signal: signalNumber(killSignal, "killSignal"),
      graceMs: BigInt(wholeMilliseconds(graceMs, "graceMs")),
      forget,
      leftovers,
    };
    return endedCommandOf(await this.#channel.unary(ExecSessions.method.endExec, request, call));
  }

  /** Sends a signal to the process group of a running kept command, whether a call is attached to it or not. */
  async signal(name: string, signal: number | SignalName, options: SignalCommandOptions = {}): Promise<void> {
    checkOptions("the options of signal()", options, SIGNAL);
    const { execId = "", ...call } = options;
    const request = { name, execId, signal: signalNumber(signal) };
    await this.#channel.unary(ExecSessions.method.signalExec, request, call);
  }

  /**
   * Lists the processes of the session: the workload, commands, hooks and ready_cmd, and all processes that these have
   * started. Requires no program in the image. Agents before 0.4.0 fail with UNIMPLEMENTED.
   */
  async processes(options?: CallOptions): Promise<ProcessList> {
    checkOptions("the options of processes()", options, CALL);
    const answer = await this.#channel.question(ExecSessions.method.listProcesses, {}, options);
    return plain(ListProcessesResponseSchema, answer);
  }

  /**
   * Sends a signal to one process of the session. Pass a process that `processes` returned. If the process has ended,
   * rejects with NOT_FOUND and PROCESS_UNKNOWN, even if another process now has its process id.
   *
   * A process id alone is also accepted, but is less safe: the process that you mean may have ended before the call,
   * and another process may have its id. For a process id, the client first calls `processes` to read the start time of
   * the process, so that a process which gets the id later never receives the signal. `processes` returns at most 4096
   * processes, and the process must be one of them.
   */
  async signalProcess(
    process: number | Pick<SessionProcess, "pid" | "startTicks">,
    signal: number | SignalName,
    options: CallOptions = {},
  ): Promise<void> {
    checkOptions("the options of signalProcess()", options, CALL);
    const limit = new TimeLimit(options.requestTimeoutMs);
    const pid = wholeNumber(typeof process === "number" ? process : process.pid, "pid");
    const number = signalNumber(signal);
    const startTicks = typeof process === "number" ? await this.#startTicksOf(pid, options) : process.startTicks;
    const request = {
      pid,
      startTicks: BigInt(wholeNumber(startTicks, "startTicks", Number.MAX_SAFE_INTEGER)),
      signal: number,
    };
    const call = { ...options, requestTimeoutMs: limit.left() };
    await this.#channel.unary(ExecSessions.method.signalProcess, request, call);
  }

  /**
   * Returns the start time of a process, in clock ticks; 0 if the session has no such process. No process has the start
   * time 0, so for 0 the agent reports that the process does not exist.
   */
  async #startTicksOf(pid: number, options: CallOptions): Promise<number> {
    const { processes } = await this.processes(options);
    return processes.find((process) => process.pid === pid)?.startTicks ?? 0;
  }

  #start(
    args: readonly string[],
    options: (RunSettings | KeptStartOptions) & ProcessOptions,
    how: Pick<ProcessParts, "readers" | "isText" | "checked">,
  ): GuestProcess {
    const { env, cwd, user, terminal, timeoutMs, keep, stdin = false, input, stdio, ...call } = options;
    const source = input !== undefined || stdin ? "pipe" : stdioOf(stdio)[0];
    const isStdin = source !== "ignore";
    const command = { env, cwd, user, terminal, timeoutMs, keep, stdin: isStdin };
    const first = { case: "start", value: startMessage(args, command) } as const;
    const hasStdin = isStdin || terminal !== undefined;
    const inheritsInput = source !== "inherit" ? false : terminal === undefined ? true : "terminal";
    const connected: ProcessParts = { ...how, hasStdin, inheritsInput, signal: call.signal };
    const process =
      keep === undefined
        ? new GuestProcess(new ExecCall(this.#channel, call, first), connected)
        : this.#kept({ name: keep.name, first, options: { failOnGap: keep.whenFull === "block", ...call } }, connected);
    if (input !== undefined) process.stdin.end(input);
    return process;
  }

  #kept(parts: Pick<KeptParts, "name" | "first" | "options">, connected: ProcessParts): KeptProcess {
    return new KeptProcess({ ...parts, ...this.#redial(parts.options) }, connected);
  }
}
