import type { Writable } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import type { ExecExit, ExecFrame, ExecStarted } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { errnoOf } from "../../../shared/errors.ts";
import { terminalSize } from "../arguments.ts";
import { abortedError, failure, type GuestError, invalidOption } from "../errors/errors.ts";
import { TimeLimit } from "../time-limit.ts";
import { deferred } from "../deferred.ts";
import { readableStream, writableStream } from "../web-streams.ts";
import { type CommandResult, resultOf, type SignalName, signalNumber } from "./command.ts";
import { CommandError } from "./command-error.ts";
import { hungUp } from "./own-command.ts";
import { inheritInput, type OutputReaders, readThrough } from "./stdio.ts";
import { inputStream, type OutputReadable, OutputStream } from "./streams.ts";
import type { ExecWire } from "./wire.ts";

type Outputs = Readonly<Record<"stdout" | "stderr", OutputStream>>;

/** A command's streams as web streams. */
export interface WebStreams<Output extends string | Buffer = string> {
  /** Text is sent as UTF-8. Aborting this stream cancels the command. */
  readonly stdin: WritableStream<Uint8Array | string>;
  /** Cancelling this stream drops the rest of the output. */
  readonly stdout: ReadableStream<Output>;
  readonly stderr: ReadableStream<Output>;
}

/** Limit on the standard error that is kept for a CommandError. */
const STDERR_END_BYTES = 8_192;

/** How the standard streams of a GuestProcess are connected. */
export interface ProcessParts {
  /**
   * Whether the command has standard input. If so, everything that is written to `stdin` is sent to the command, and
   * the end of `stdin` is sent as EOF.
   */
  readonly hasStdin: boolean;
  /**
   * Whether to connect `stdin` to this program's standard input. The value is "terminal" if the command runs in a
   * terminal.
   */
  readonly inheritsInput?: boolean | "terminal" | undefined;
  /** The callbacks that receive the outputs. The caller must read an output that has no callback. */
  readonly readers?: OutputReaders | undefined;
  /** Whether the outputs that the caller reads yield text. */
  readonly isText: boolean;
  /** When this signal is aborted, `wait` no longer waits for the promises that reader callbacks have returned. */
  readonly signal?: AbortSignal | undefined;
  /**
   * The command's program and arguments. If set, `wait` rejects with a CommandError that names them, unless the exit
   * code is 0.
   */
  readonly checked?: readonly string[] | undefined;
}

/**
 * A command in the sandbox. Read both outputs, or call `resume()` on the output that you do not need: an output that is
 * not read blocks the command, and thereby also the other output. If you leave a `for await` loop over an output early,
 * the command is ended, as with `cancel`; to leave it running, iterate over `stdout.iterator({ destroyOnReturn: false
 * })`. `await using` also ends the command.
 */
export class GuestProcess<Output extends string | Buffer = string> {
  /** Standard input. Requires `stdin: true` or a `terminal`; otherwise the command has none, and this stream has ended. */
  readonly stdin: Writable;
  /** Standard output. Yields text, or bytes with `encoding: "buffer"`. */
  readonly stdout: OutputReadable<Output>;
  /** Standard error; empty for a command in a terminal. */
  readonly stderr: OutputReadable<Output>;
  /**
   * Process ID in the guest. Rejects with GuestError if the command could not be started; a rejection that nobody
   * awaits is ignored.
   */
  readonly started: Promise<number>;
  /** The agent's first answer. Rejects with GuestError if the call fails before that answer. */
  protected readonly answered: Promise<ExecStarted>;
  readonly #wire: ExecWire;
  readonly #outputs: Outputs;
  readonly #start = deferred<ExecStarted>();
  readonly #end = deferred<CommandResult>();
  #web: WebStreams<Output> | undefined;
  #exit: ExecExit | undefined;
  #pid: number | undefined;
  #failed = false;
  /** The error that made this client cancel the command. */
  #abandoned: { readonly error: unknown } | undefined;
  readonly #checked: readonly string[] | undefined;
  readonly #signal: AbortSignal | undefined;
  #stderrEnd = Buffer.alloc(0);
  /** Settles when all output that this library reads for the caller has been read. */
  readonly #read: Promise<unknown>;
  #result: Promise<CommandResult> | undefined;

  /** @throws GuestError if the call cannot be made */
  constructor(wire: ExecWire, { hasStdin, inheritsInput = false, readers, isText, signal, checked }: ProcessParts) {
    this.#signal = signal;
    this.#checked = checked;
    this.#wire = wire;
    const resumeIfRoom = (): void => this.#resumeIfRoom();
    const parts = { onRoom: resumeIfRoom, onRead: wire.onRead, onLeft: () => this.onLeft() };
    const outputOf = (name: "stdout" | "stderr"): OutputStream =>
      new OutputStream({ ...parts, isText: isText && readers?.[name] === undefined });
    this.#outputs = { stdout: outputOf("stdout"), stderr: outputOf("stderr") };
    this.stdout = this.#outputs.stdout as unknown as OutputReadable<Output>;
    this.stderr = this.#outputs.stderr as unknown as OutputReadable<Output>;
    this.answered = this.#start.promise;
    this.started = this.answered.then(({ pid }) => pid);
    // Callers need not await these promises. Handle their rejections, which would otherwise end the caller's program.
    this.started.catch(() => undefined);
    this.#end.promise.catch((error: unknown) => this.#closeStreams(error));
    this.stdin = inputStream(wire, hasStdin, (reason) =>
      this.#abandon(
        hasStdin || errnoOf(reason) !== "ERR_STREAM_WRITE_AFTER_END" ? sourceFailed(reason) : noStdin(reason),
      ),
    );
    wire.open({
      frame: (frame) => this.#receive(frame),
      ended: () => this.#ended(),
      failed: (error) => this.#fail(this.#abandoned === undefined ? error : this.#abandoned.error),
      unread: (output) => this.#outputs[output].unreadBytes,
    });
    if (!hasStdin) this.stdin.end();
    this.#read = Promise.all([this.#readBy(readers, "stdout"), this.#readBy(readers, "stderr")]);
    this.#read.catch(() => undefined);
    if (inheritsInput !== false) this.#inheritInput(inheritsInput === "terminal");
  }

  /** Process ID in the guest; undefined until the command has started. To wait for the ID, await `started`. */
  get pid(): number | undefined {
    return this.#pid;
  }

  /** The command's streams as web streams. Use either these or the Node streams. */
  get web(): WebStreams<Output> {
    this.#web ??= {
      stdin: writableStream(this.stdin),
      stdout: readableStream(this.stdout),
      stderr: readableStream(this.stderr),
    };
    return this.#web;
  }

  /** Sets the terminal's size. Throws GuestError unless both numbers are integers from 0 to 65535. */
  resize(cols: number, rows: number): void {
    // Check here, because an invalid size would make the agent end the call, and with it the command.
    this.#wire.send({ case: "resize", value: terminalSize({ cols, rows }, "") });
  }

  /**
   * Sends a signal to the command's process group. The signal is given by its name, or by its number in the guest. The
   * call continues: `wait()` resolves with the result when the command has ended and its output was read. Unlike after
   * `cancel()`, no SIGKILL follows: if the command may ignore the signal, call `kill("SIGKILL")` later. Throws
   * GuestError for an unknown signal.
   */
  kill(signal: number | SignalName = "SIGTERM"): void {
    this.#wire.send({ case: "signal", value: { number: signalNumber(signal) } });
  }

  /**
   * Cancels the call, which ends the command. `wait()` rejects with HUNG_UP at once, without an exit code. The agent
   * sends SIGHUP to the command's session, and SIGKILL 5 s later. In these 5 s, a command that ignores SIGHUP may still
   * write files. An abort, `await using` and leaving a loop over an output have the same effect. To wait until the
   * command has ended, call `kill()` and then `wait()` instead.
   */
  cancel(): void {
    this.#abandoned ??= { error: hungUp() };
    this.#wire.cancel();
  }

  /**
   * Iterates over the lines of an output, as text (UTF-8) without line ends. Leaving a loop over the lines early ends
   * the command, like leaving a loop over the stream. Fails with OUTPUT_TOO_LARGE at a line of more than 100 MB, and
   * with ABORT_ERR if the call's signal is aborted.
   */
  async *lines({ from = "stdout" }: LinesOptions = {}): AsyncGenerator<string, undefined, undefined> {
    const decoder = new StringDecoder("utf8");
    // Join the pieces of a line only when the line is complete. Joining after each piece would copy the beginning of
    // the line every time.
    let pieces: string[] = [];
    let length = 0;
    for await (const bytes of this[from] as AsyncIterable<Buffer | string>) {
      const text = typeof bytes === "string" ? bytes : decoder.write(bytes);
      let start = 0;
      for (let end; (end = text.indexOf("\n", start)) >= 0; start = end + 1) {
        pieces.push(text.slice(start, end));
        yield withoutReturn(pieces.join(""));
        pieces = [];
        length = 0;
      }
      if (start < text.length) pieces.push(text.slice(start));
      length += text.length - start;
      if (length > LONGEST_LINE)
        throw failure(
          "RESOURCE_EXHAUSTED",
          "OUTPUT_TOO_LARGE",
          `a line of ${from} has more than ${LONGEST_LINE} characters`,
        );
    }
    pieces.push(decoder.end());
    const last = pieces.join("");
    if (last !== "") yield withoutReturn(last);
    return undefined;
  }

  /**
   * Iterates over the lines of standard output, as `lines` does. The loop ends at the end of the output, also if the
   * command failed. To learn the exit code, call `wait()` after the loop; with the option `check`, `wait()` rejects if
   * the command failed.
   */
  [Symbol.asyncIterator](): AsyncGenerator<string, undefined, undefined> {
    return this.lines();
  }

  /**
   * Ends the command, as `cancel` does, unless it has already ended. Resolves when the call is over; a command that
   * ignores SIGHUP may still run then.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#exit === undefined) this.cancel();
    await this.#end.promise.catch(() => undefined);
  }

  /**
   * Resolves with the command's result once all of its output has reached the streams and the callbacks. Rejects with
   * GuestError, with the error of a callback, or, if `check` is set, with CommandError.
   */
  wait(): Promise<CommandResult> {
    this.#result ??= this.#checkedResult();
    return this.#result;
  }

  /** Called when the reader leaves a loop over an output. Does nothing after the command's end. */
  protected onLeft(): void {
    if (this.#exit !== undefined || this.#failed) return;
    const message = "the command was cancelled, because the caller left the loop over its output";
    this.#abandoned ??= { error: failure("CANCELLED", "STREAM_LEFT", message) };
    this.#wire.cancel();
  }

  async #checkedResult(): Promise<CommandResult> {
    // A reader callback may return a promise that never settles. An abort must end the wait for that promise, even if
    // the command has already ended.
    const read = this.#signal === undefined ? this.#read : orAborted(this.#read, this.#signal);
    const [result] = await Promise.all([this.#end.promise, read]);
    if (this.#checked === undefined || result.exitCode === 0) return result;
    throw new CommandError(this.#checked, { ...result, stdout: "", stderr: this.#stderrEnd.toString() });
  }

  async #readBy(readers: OutputReaders | undefined, name: "stdout" | "stderr"): Promise<void> {
    const reader = readers?.[name];
    if (reader === undefined) return;
    await readThrough(this[name], reader, (error) => {
      this.#abandoned ??= { error };
      this.cancel();
    });
  }

  #inheritInput(isTerminal: boolean): void {
    const onResize = (cols: number, rows: number): void => this.resize(cols, rows);
    const release = inheritInput(this.stdin, isTerminal ? onResize : undefined);
    this.#end.promise.then(release, release);
  }

  #receive(frame: ExecFrame["frame"]): void {
    if (frame.case === "started") {
      this.#pid = frame.value.pid;
      this.#start.resolve(frame.value);
    } else if (frame.case === "stdout" || frame.case === "stderr") {
      if (this.#checked !== undefined && frame.case === "stderr") this.#keepEnd(frame.value);
      this.#outputs[frame.case].accept(frame.value);
      if (this.#outputs[frame.case].full) this.#wire.pause();
    } else if (frame.case === "exit") {
      this.#exit = frame.value;
      this.#wire.finish();
    }
  }

  #ended(): void {
    if (this.#exit === undefined) {
      const message = "the agent ended the call without saying how the command ended";
      this.#fail(failure("INTERNAL", "EXIT_MISSING", message));
      return;
    }
    this.#outputs.stdout.end();
    this.#outputs.stderr.end();
    this.stdin.destroy();
    this.#end.resolve(resultOf(this.#exit));
  }

  #keepEnd(stderr: Uint8Array): void {
    this.#stderrEnd = Buffer.concat([this.#stderrEnd, stderr.subarray(-STDERR_END_BYTES)]).subarray(-STDERR_END_BYTES);
  }

  #fail(error: unknown): void {
    this.#failed = true;
    this.#start.reject(error);
    this.#end.reject(error);
  }

  /**
   * Cancels a command whose input source has failed, because the command would otherwise run with only part of its
   * input. Does nothing after the command's end.
   */
  #abandon(error: GuestError): void {
    if (this.#exit !== undefined || this.#failed) return;
    this.#abandoned ??= { error };
    this.#wire.cancel();
  }

  #closeStreams(error: unknown): void {
    const reason = error instanceof Error ? error : undefined;
    for (const stream of [this.stdin, this.stdout, this.stderr]) stream.destroy(reason);
  }

  #resumeIfRoom(): void {
    if (!this.#outputs.stdout.full && !this.#outputs.stderr.full) this.#wire.resume();
  }
}

function sourceFailed(cause: Error): GuestError {
  const message = `the source of the command's standard input failed: ${cause.message}`;
  return failure("FAILED_PRECONDITION", "SOURCE_FAILED", message, cause);
}

/** The error for a write to the `stdin` of a command that was started without standard input. */
function noStdin(cause: Error): GuestError {
  const message = "the command has no standard input; to write to it, start the command with stdin: true";
  return invalidOption("stdin", message, cause);
}

/** Options of `lines`. */
export interface LinesOptions {
  /** The output to read. Default: "stdout". */
  readonly from?: "stdout" | "stderr" | undefined;
}

/** Limit on the characters of a line, so that a command that writes no line ends cannot fill the memory. */
const LONGEST_LINE = 100_000_000;

/** Resolves or rejects as `promise` does, or rejects with GuestError if the signal is aborted first. */
function orAborted<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new TimeLimit(undefined).within(promise, () => abortedError(signal), signal);
}

function withoutReturn(line: string): string {
  return line.endsWith("\r") ? line.slice(0, -1) : line;
}
