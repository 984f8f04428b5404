import {
  AgentError,
  AWAKE_LIMIT_MS,
  END_GRACE_LIMIT_MS,
  frameOrder,
  invalidField,
  KEPT_BUFFER_LIMIT_BYTES,
  TIMER_LIMIT_MS,
} from "../domain/index.ts";
import { type Command, commandFaults } from "../session/index.ts";
import type { Offsets, WhenFull } from "./output-log.ts";

/** Parameters of a new command (message ExecStart). */
export interface ExecRequest extends Command {
  /** 0 means no timeout. */
  readonly timeoutMs: number;
  /** How to keep the command. If undefined, the command ends with its call. */
  readonly keep: KeepRequest | undefined;
}

/** How to keep a command when its call ends (message ExecKeep). */
export interface KeepRequest {
  readonly name: string;
  /** Size of the output buffer; 0 means the default. */
  readonly bufferBytes: number;
  /** What happens if the buffer is full; undefined for a value that the agent does not know. */
  readonly whenFull: WhenFull | undefined;
  /** How long the command is kept after its end; 0 means the default. */
  readonly lingerMs: number;
  readonly replaceEnded: boolean;
  /** How long the running command counts as user activity without an attached call. 0 means that it does not count. */
  readonly awakeForMs: number;
}

/** Identifies a kept command in a request. */
interface KeptName {
  readonly name: string;
  /** If empty, the request applies to the command that currently has the name. */
  readonly execId: string;
}

/** A request to attach to a kept command, from the given offsets of its output (message ExecAttach). */
export interface AttachRequest extends KeptName {
  readonly stdoutOffset?: bigint | undefined;
  readonly stderrOffset?: bigint | undefined;
  readonly fromNow: boolean;
  /** Size for the command's terminal, if it has one. */
  readonly size?: { readonly cols: number; readonly rows: number } | undefined;
  /** Whether to attach to the workload's output. If true, `name` is not set. */
  readonly workload: boolean;
}

/** Which kept command to end (message EndExecRequest). */
export interface EndRequest extends KeptName {
  /** The first signal; 0 means SIGTERM. */
  readonly signal: number;
  /** Grace period before SIGKILL; 0 means the default. */
  readonly graceMs: number;
  /** Whether to free the command's name and buffer once it has ended. */
  readonly forget: boolean;
  /** If the command has already ended: whether to end the processes that it left running. */
  readonly leftovers: boolean;
}

export interface SignalRequest extends KeptName {
  readonly signal: number;
}

/** A frame of an Exec call whose content goes to the command, such as input or a signal. */
export type CommandInput =
  /** `release` is called when the bytes are no longer needed. */
  | { readonly kind: "stdin"; readonly bytes: Uint8Array; readonly release: () => void }
  | { readonly kind: "stdin_close" }
  | { readonly kind: "resize"; readonly cols: number; readonly rows: number }
  | { readonly kind: "signal"; readonly number: number };

/** A frame that follows the first frame of a call. Only calls that attach to a kept command may send `ack` and `forget`. */
export type ExecInput =
  | CommandInput
  | { readonly kind: "ack"; readonly stdoutOffset: bigint; readonly stderrOffset: bigint }
  | { readonly kind: "forget" };

const SIGNAL_MAX = 64;
const TERMINAL_SIZE_MAX = 65_535;
const NAME = /^[A-Za-z0-9._-]{1,128}$/;

/** Throws INVALID_ARGUMENT for an invalid start frame. */
export function checkExecRequest(request: ExecRequest): void {
  if (request.args.length === 0) throw invalidField("start.args", "must not be empty: it names the command to run");
  for (const [field, problem] of commandFaults("start.", request)) throw invalidField(field, problem);
  const { stdio } = request;
  if (stdio.kind === "terminal") {
    checkTerminalSize("start.terminal", stdio.cols, stdio.rows);
    if (stdio.term?.includes("\0") === true) throw invalidField("start.terminal.term", "contains a NUL byte");
  }
  if (request.keep !== undefined) checkKeep(request.keep);
}

function checkKeep({ name, bufferBytes, whenFull, lingerMs, awakeForMs }: KeepRequest): void {
  if (!NAME.test(name)) {
    throw invalidField("start.keep.name", 'must consist of 1 to 128 letters, digits, ".", "_" or "-"');
  }
  if (bufferBytes > KEPT_BUFFER_LIMIT_BYTES) {
    throw invalidField("start.keep.buffer_bytes", `is ${bufferBytes}, but the maximum is ${KEPT_BUFFER_LIMIT_BYTES}`);
  }
  if (whenFull === undefined) throw invalidField("start.keep.when_full", "must be DROP_OLDEST or BLOCK");
  if (lingerMs > TIMER_LIMIT_MS) {
    throw invalidField("start.keep.linger_ms", `is ${lingerMs}, but the maximum is ${TIMER_LIMIT_MS}`);
  }
  if (awakeForMs > AWAKE_LIMIT_MS) {
    throw invalidField("start.keep.awake_for_ms", `is ${awakeForMs}, but the maximum is ${AWAKE_LIMIT_MS} (24 h)`);
  }
}

/** Throws INVALID_ARGUMENT for an invalid attach frame, such as one that has no start position, or two. */
export function checkAttachRequest(request: AttachRequest): void {
  const { name, stdoutOffset, stderrOffset, fromNow, size, workload } = request;
  if (workload && name !== "") throw invalidField("attach.name", "cannot be combined with attach.workload");
  const hasOffset = stdoutOffset !== undefined || stderrOffset !== undefined;
  if (fromNow && hasOffset) throw invalidField("attach.from_now", "cannot be combined with an offset");
  if (!fromNow && !hasOffset) {
    throw invalidField("attach", "requires a start position: set from_now, stdout_offset or stderr_offset");
  }
  if (size !== undefined) checkTerminalSize("attach.size", size.cols, size.rows);
}

/**
 * Returns the offsets at which the output for an attaching client begins. The second parameter has the current length
 * of each stream. Throws OUT_OF_RANGE for an offset past the end.
 */
export function attachOffsets({ stdoutOffset, stderrOffset }: AttachRequest, { stdout, stderr }: Offsets): Offsets {
  checkOffset("attach.stdout_offset", stdoutOffset, stdout);
  checkOffset("attach.stderr_offset", stderrOffset, stderr);
  return { stdout: Number(stdoutOffset ?? stdout), stderr: Number(stderrOffset ?? stderr) };
}

/** Throws OUT_OF_RANGE for an offset past the end of a stream. */
export function checkOffset(field: string, offset: bigint | undefined, end: number): void {
  if (offset === undefined || offset <= end) return;
  const message = `${field} is ${offset}, but the stream has only ${end} bytes so far`;
  throw new AgentError("OUT_OF_RANGE", "EXEC_OFFSET_PAST_END", message, { field, end: String(end) });
}

/** Throws INVALID_ARGUMENT if the signal or the grace period of the request is out of range. */
export function checkEndRequest({ signal, graceMs }: EndRequest): void {
  if (signal > SIGNAL_MAX) throw invalidField("signal", `is ${signal}, but must be 0 to ${SIGNAL_MAX}`);
  if (graceMs > END_GRACE_LIMIT_MS) {
    throw invalidField("grace_ms", `is ${graceMs}, but the maximum is ${END_GRACE_LIMIT_MS}`);
  }
}

/** Throws INVALID_ARGUMENT for a number that is not a signal. */
export function checkSignal(field: string, signal: number): void {
  if (signal < 1 || signal > SIGNAL_MAX) throw invalidField(field, `is ${signal}, but must be 1 to ${SIGNAL_MAX}`);
}

function checkTerminalSize(field: string, cols: number, rows: number): void {
  if (cols < 0 || rows < 0 || cols > TERMINAL_SIZE_MAX || rows > TERMINAL_SIZE_MAX) {
    throw invalidField(field, `is ${cols}x${rows}: cols and rows must be 0 to ${TERMINAL_SIZE_MAX}`);
  }
}

/** Checks the order and the values of frames after a start frame. */
export class ExecInputOrder {
  readonly hasTerminal: boolean;
  /** Whether the client may send input. */
  readonly hasStdin: boolean;
  readonly #isKept: boolean;
  #stdinClosed = false;

  /** Keeps no reference to the request, because a request may be large. */
  constructor({ stdio, keep }: Pick<ExecRequest, "stdio" | "keep">) {
    this.hasTerminal = stdio.kind === "terminal";
    this.hasStdin = stdio.kind === "terminal" || (stdio.kind === "pipes" && stdio.stdin);
    this.#isKept = keep !== undefined;
  }

  /** Whether stdin frames are invalid, because the command has no standard input or the client has ended it. */
  get stdinClosed(): boolean {
    return this.#stdinClosed || !this.hasStdin;
  }

  /** Returns the frame. Throws INVALID_ARGUMENT if it is out of order or invalid. */
  check(frame: ExecInput): CommandInput {
    switch (frame.kind) {
      case "stdin":
        if (this.#stdinClosed) throw frameOrder("stdin frame after stdin_close");
        if (!this.hasStdin) throw frameOrder("stdin frame, but start.stdin was false");
        return frame;
      case "stdin_close":
        if (this.#stdinClosed && !this.#isKept) throw frameOrder("second stdin_close frame");
        this.#stdinClosed = true;
        return frame;
      case "resize":
        if (!this.hasTerminal) throw frameOrder("resize frame, but start.terminal was absent");
        checkTerminalSize("resize", frame.cols, frame.rows);
        return frame;
      case "signal":
        checkSignal("signal.number", frame.number);
        return frame;
      case "ack":
      case "forget":
        throw frameOrder(`${frame.kind} frame, but start.keep was absent`);
    }
  }
}
