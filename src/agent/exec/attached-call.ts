import { type Incoming, type AgentError, type Attachment, whenAborted } from "../domain/index.ts";
import type { ExecResult } from "./command.ts";
import type { ExecOutput } from "./exec-call.ts";
import type { CommandInput, ExecInput } from "./frames.ts";
import { type Cursor, type Offsets, type OutputLog, type OutputStream, READ_BYTES } from "./output-log.ts";

/** The state of a kept command that the agent sends first when a call attaches (message ExecStarted). */
export interface KeptStarted {
  readonly pid: number;
  readonly execId: string;
  /**
   * For each stream, the offset at which the output of this call begins. If a `gap` frame follows, the missing bytes
   * begin at this offset.
   */
  readonly offsets: Offsets;
  /** Number of bytes of each output stream that the agent has read so far. */
  readonly ends: Offsets;
  /** Number of bytes of input that were accepted so far. */
  readonly stdinOffset: number;
  readonly stdinClosed: boolean;
  readonly terminal: boolean;
  readonly stdin: boolean;
}

/** Sends frames to the client of a kept command, in the order in which these methods are called. */
interface KeptOutput extends Pick<ExecOutput, "output" | "exit"> {
  started(started: KeptStarted): void;
  gap(stream: OutputStream, bytes: number): void;
  /** `done` is called when the frame was sent. */
  stdinAck(offset: number, done: () => void): void;
}

/**
 * The client's side of a call that attaches to a kept command: the frames that it sends, and functions that send frames
 * to it.
 */
export interface KeptCall {
  readonly input: Incoming<ExecInput>;
  readonly output: KeptOutput;
  /** This signal is aborted when the client disconnects. */
  readonly signal: AbortSignal;
  /** Ends the call with this error. If the client is not reading, it gets the error as soon as it reads again. */
  failOnRead(error: AgentError): void;
}

/** Limit for unsent output of a call; the rest stays in the command's buffer. */
const IN_FLIGHT_BYTES: number = 2 * READ_BYTES;
/** Output chunks of this size or more are copied into a reused buffer. A smaller chunk gets a new buffer. */
const SMALL_BYTES = 4 * 1024;
/** Memory that a queued frame takes in addition to its payload. */
const FRAME_OVERHEAD_BYTES = 256;
/**
 * Limit for input that waits because the command has not accepted earlier input. Above the limit, the agent reads no
 * more frames of the call, not even acknowledgements of output. This happens only to clients that violate the schema:
 * it permits at most this much unacknowledged input (ExecStdinAck).
 */
const WAITING_INPUT_BYTES = 256 * 1024;

/** A call attached to a kept command, with its position in the output and its pending input. */
export class AttachedCall {
  readonly call: KeptCall;
  readonly activity: Attachment | undefined;
  /** Resolves when the exit has been sent. If the call is detached before that, rejects with the reason. */
  readonly over: Promise<void>;
  /** Frames that wait for room in the command's input. */
  readonly waiting: CommandInput[] = [];
  readonly #log: OutputLog;
  readonly #cursor: Cursor;
  readonly #settle: PromiseWithResolvers<void>;
  readonly #free: Uint8Array[] = [];
  #inFlightBytes = 0;
  #isFlushing = false;
  #waitingBytes = 0;
  #takenStdin = 0;
  #acknowledgedStdin = 0;
  #acknowledging = false;
  #result: ExecResult | undefined;
  #isOver = false;

  constructor(call: KeptCall, log: OutputLog, cursor: Cursor, activity: Attachment | undefined) {
    this.call = call;
    this.activity = activity;
    this.#log = log;
    this.#cursor = cursor;
    this.#settle = Promise.withResolvers<void>();
    this.over = this.#settle.promise;
    // If the client is lost while the command starts, nobody awaits this promise, so an unhandled rejection is
    // prevented here.
    this.over.catch(() => {});
  }

  /**
   * Waits until the call is over, and settles like `over`. If the client disconnects before that, ends the call and
   * rejects with the signal's reason.
   */
  async untilOver(): Promise<void> {
    const { signal } = this.call;
    using _listener = whenAborted(signal, () => this.end(signal.reason as AgentError));
    await this.over;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Whether the limit for waiting input is exceeded, so that no further frames of the call are read. */
  get isFull(): boolean {
    return this.#waitingBytes > WAITING_INPUT_BYTES;
  }

  /** Queues a frame until the command's input has room for it. */
  wait(frame: CommandInput): void {
    this.waiting.push(frame);
    this.#waitingBytes += costOf(frame);
  }

  nextWaiting(): CommandInput | undefined {
    const frame = this.waiting.shift();
    if (frame !== undefined) this.#waitingBytes -= costOf(frame);
    return frame;
  }

  /** Ends the call: nothing more is sent, and pending input is dropped. */
  end(error?: Error): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.waiting.length = 0;
    this.#waitingBytes = 0;
    if (error === undefined) this.#settle.resolve();
    else this.#settle.reject(error);
  }

  /**
   * Acknowledges that the command has accepted input up to this offset. At most one acknowledgement is in flight; the
   * next one is sent after it, with the newest offset. Otherwise acknowledgements would pile up if the client does not
   * read.
   */
  stdinTaken(offset: number): void {
    this.#takenStdin = offset;
    this.#acknowledge();
  }

  /** Call it when the command has ended and all its output is in the log. The exit is sent after that output. */
  exited(result: ExecResult): void {
    this.#result = result;
    this.flush();
  }

  /** Sends available output as fast as the client reads. */
  flush(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    let isAll = false;
    while (!this.#isOver && !isAll && this.#inFlightBytes < IN_FLIGHT_BYTES) isAll = !this.#sendNext();
    this.#isFlushing = false;
    if (isAll && this.#result !== undefined) {
      this.call.output.exit(this.#result);
      this.end();
    }
  }

  #sendNext(): boolean {
    const { output } = this.call;
    const entry = this.#log.next(this.#cursor, (sizeBytes) => this.#buffer(sizeBytes));
    if (entry?.kind === "gap") output.gap(entry.stream, entry.bytes);
    else if (entry !== undefined) {
      const { bytes } = entry;
      this.#inFlightBytes += bytes.length + FRAME_OVERHEAD_BYTES;
      output.output(entry.stream, bytes, () => {
        this.#inFlightBytes -= bytes.length + FRAME_OVERHEAD_BYTES;
        if (bytes.buffer.byteLength === READ_BYTES) this.#free.push(new Uint8Array(bytes.buffer));
        this.flush();
      });
    }
    return entry !== undefined;
  }

  #buffer(sizeBytes: number): Uint8Array {
    if (sizeBytes < SMALL_BYTES) return new Uint8Array(sizeBytes);
    return (this.#free.pop() ?? new Uint8Array(READ_BYTES)).subarray(0, sizeBytes);
  }

  #acknowledge(): void {
    if (this.#acknowledging || this.#isOver || this.#acknowledgedStdin === this.#takenStdin) return;
    this.#acknowledging = true;
    this.#acknowledgedStdin = this.#takenStdin;
    this.call.output.stdinAck(this.#takenStdin, () => {
      this.#acknowledging = false;
      this.#acknowledge();
    });
  }
}

function costOf(frame: CommandInput): number {
  return FRAME_OVERHEAD_BYTES + (frame.kind === "stdin" ? frame.bytes.length : 0);
}
