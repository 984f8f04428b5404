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

/** What to run and how (message ExecStart). */
export interface ExecRequest extends Command {
  /** 0: no limit. */
  readonly timeoutMs: number;
  /** Undefined: the command ends with its call. */
  readonly keep: KeepRequest | undefined;
}

/** How an exec is kept (message ExecKeep). */
export interface KeepRequest {
  readonly name: string;
  /** 0: the default. */
  readonly bufferBytes: number;
  /** Undefined: a value that this agent does not know. */
  readonly whenFull: WhenFull | undefined;
  /** 0: the default. */
  readonly lingerMs: number;
  readonly replaceEnded: boolean;
  /** 0: it does not count as activity by itself. */
  readonly awakeForMs: number;
}

/** A kept exec, as requests name it. */
interface KeptName {
  readonly name: string;
  /** Empty: whichever has the name now. */
  readonly execId: string;
}

/** Which kept exec to attach to, and from where (message ExecAttach). */
export interface AttachRequest extends KeptName {
  readonly stdoutOffset?: bigint | undefined;
  readonly stderrOffset?: bigint | undefined;
  readonly fromNow: boolean;
  /** Of the terminal, if it has one. */
  readonly size?: { readonly cols: number; readonly rows: number } | undefined;
  /** The workload's output is meant; then there is no name. */
  readonly workload: boolean;
}

/** Which kept exec to end (message EndExecRequest). */
export interface EndRequest extends KeptName {
  /** 0: SIGTERM. */
  readonly signal: number;
  /** 0: the default. */
  readonly graceMs: number;
  /** Free its name and buffer once it has ended. */
  readonly forget: boolean;
}

/** Which kept exec gets which signal (message SignalExecRequest). */
export interface SignalRequest extends KeptName {
  readonly signal: number;
}

/** A frame from the client after the first that is for the command. */
export type CommandInput =
  /** `release` is called once the bytes are no longer needed. */
  | { readonly kind: "stdin"; readonly bytes: Uint8Array; readonly release: () => void }
  | { readonly kind: "stdin_close" }
  | { readonly kind: "resize"; readonly cols: number; readonly rows: number }
  | { readonly kind: "signal"; readonly number: number };

/** A frame from the client after the first. Only calls that attach to a kept exec may send the last two. */
export type ExecInput =
  | CommandInput
  | { readonly kind: "ack"; readonly stdoutOffset: bigint; readonly stderrOffset: bigint }
  | { readonly kind: "forget" };

const SIGNAL_MAX = 64;
const TERMINAL_SIZE_MAX = 65_535;
const NAME = /^[A-Za-z0-9._-]{1,128}$/;

/** Throws INVALID_ARGUMENT for a start frame from which no command could be run. */
export function checkExecRequest(request: ExecRequest): void {
  if (request.args.length === 0) throw invalidField("start.args", "is empty: name the command to run");
  for (const [field, problem] of commandFaults("start.", request)) throw invalidField(field, problem);
  const { stdio } = request;
  if (stdio.kind === "terminal") {
    checkTerminalSize("start.terminal", stdio.cols, stdio.rows);
    if (stdio.term?.includes("\0") === true) throw invalidField("start.terminal.term", "holds a NUL byte");
  }
  if (request.keep !== undefined) checkKeep(request.keep);
}

function checkKeep({ name, bufferBytes, whenFull, lingerMs, awakeForMs }: KeepRequest): void {
  if (!NAME.test(name)) {
    throw invalidField("start.keep.name", 'is no name: give 1 to 128 letters, digits, ".", "_" or "-"');
  }
  if (bufferBytes > KEPT_BUFFER_LIMIT_BYTES) {
    throw invalidField("start.keep.buffer_bytes", `is ${bufferBytes}: at most ${KEPT_BUFFER_LIMIT_BYTES} are held`);
  }
  if (whenFull === undefined) throw invalidField("start.keep.when_full", "is neither DROP_OLDEST nor BLOCK");
  if (lingerMs > TIMER_LIMIT_MS) {
    throw invalidField("start.keep.linger_ms", `is ${lingerMs}: at most ${TIMER_LIMIT_MS} are allowed`);
  }
  if (awakeForMs > AWAKE_LIMIT_MS) {
    throw invalidField("start.keep.awake_for_ms", `is ${awakeForMs}: at most ${AWAKE_LIMIT_MS} (24 h) are allowed`);
  }
}

/** Refuses an attach frame that does not say from where, or says it twice. */
export function checkAttachRequest(request: AttachRequest): void {
  const { name, stdoutOffset, stderrOffset, fromNow, size, workload } = request;
  if (workload && name !== "")
    throw invalidField("attach.name", "is set beside attach.workload: give one or the other");
  const hasOffset = stdoutOffset !== undefined || stderrOffset !== undefined;
  if (fromNow && hasOffset) throw invalidField("attach.from_now", "is set beside an offset: give one or the other");
  if (!fromNow && !hasOffset) {
    throw invalidField("attach", "does not say from where: set from_now, stdout_offset or stderr_offset");
  }
  if (size !== undefined) checkTerminalSize("attach.size", size.cols, size.rows);
}

/** Where an attach frame, which is checked, begins in streams of that length. Throws OUT_OF_RANGE for past the end. */
export function attachOffsets({ stdoutOffset, stderrOffset }: AttachRequest, { stdout, stderr }: Offsets): Offsets {
  checkOffset("attach.stdout_offset", stdoutOffset, stdout);
  checkOffset("attach.stderr_offset", stderrOffset, stderr);
  return { stdout: Number(stdoutOffset ?? stdout), stderr: Number(stderrOffset ?? stderr) };
}

/** Throws OUT_OF_RANGE for an offset past a stream's end. */
export function checkOffset(field: string, offset: bigint | undefined, end: number): void {
  if (offset === undefined || offset <= end) return;
  const message = `${field} is ${offset}: the stream has ${end} bytes so far`;
  throw new AgentError("OUT_OF_RANGE", "EXEC_OFFSET_PAST_END", message, { field, end: String(end) });
}

/** Refuses a frame that could not be carried out. */
export function checkEndRequest({ signal, graceMs }: EndRequest): void {
  if (signal > SIGNAL_MAX) throw invalidField("signal", `is ${signal}: it must be 0 to ${SIGNAL_MAX}`);
  if (graceMs > END_GRACE_LIMIT_MS) {
    throw invalidField("grace_ms", `is ${graceMs}: at most ${END_GRACE_LIMIT_MS} are allowed`);
  }
}

/** Refuses a number that is not a signal. */
export function checkSignal(field: string, signal: number): void {
  if (signal < 1 || signal > SIGNAL_MAX) throw invalidField(field, `is ${signal}: it must be 1 to ${SIGNAL_MAX}`);
}

function checkTerminalSize(field: string, cols: number, rows: number): void {
  if (cols < 0 || rows < 0 || cols > TERMINAL_SIZE_MAX || rows > TERMINAL_SIZE_MAX) {
    throw invalidField(field, `is ${cols}x${rows}: cols and rows must be 0 to ${TERMINAL_SIZE_MAX}`);
  }
}

/** Checks order and bounds of the frames that follow a start frame. */
export class ExecInputOrder {
  readonly hasTerminal: boolean;
  /** The client's input goes to the command. */
  readonly hasStdin: boolean;
  readonly #isKept: boolean;
  #stdinClosed = false;

  /** Keeps nothing else of the request, which may be large, while the command runs. */
  constructor({ stdio, keep }: Pick<ExecRequest, "stdio" | "keep">) {
    this.hasTerminal = stdio.kind === "terminal";
    this.hasStdin = stdio.kind === "terminal" || (stdio.kind === "pipes" && stdio.stdin);
    this.#isKept = keep !== undefined;
  }

  /** The command takes no stdin frame, or no more. */
  get stdinClosed(): boolean {
    return this.#stdinClosed || !this.hasStdin;
  }

  /** Returns the frame. Throws INVALID_ARGUMENT when it may not come now or could not be carried out. */
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
