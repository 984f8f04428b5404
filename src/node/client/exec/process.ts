import type { Readable, Writable } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import type { ExecExit, ExecFrame, ExecStarted } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { wholeNumber } from "../arguments.ts";
import { failure, type GuestError } from "../errors.ts";
import { deferred } from "../deferred.ts";
import { readableStream, writableStream } from "../web-streams.ts";
import { type CommandResult, resultOf, type SignalName, signalNumber } from "./command.ts";
import { inputStream, OutputStream } from "./streams.ts";
import type { ExecWire } from "./wire.ts";

type Outputs = Readonly<Record<"stdout" | "stderr", OutputStream>>;

/** A command's streams as web streams. */
export interface WebStreams {
  /** Aborting this stream cancels the command. */
  readonly stdin: WritableStream<Uint8Array>;
  /** Cancelling this stream drops the rest of the output. */
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
}

/**
 * A command in the sandbox. Read both outputs, or call `resume()` on the one that you do not need: a full output blocks
 * the other one, and the command. Leaving a `for await` loop over an output before its end ends the command, as
 * `cancel` does; use `stdout.iterator({ destroyOnReturn: false })` to leave it running. `await using` ends it, too.
 */
export class GuestProcess {
  /** Standard input; ended from the start if the command has none. */
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** Empty for a command in a terminal. */
  readonly stderr: Readable;
  /** Process ID in the guest. Rejects with GuestError if the command could not be started. */
  readonly started: Promise<number>;
  /** The agent's first answer. Rejects with GuestError if there is none. */
  protected readonly answered: Promise<ExecStarted>;
  readonly #wire: ExecWire;
  readonly #outputs: Outputs;
  readonly #start = deferred<ExecStarted>();
  readonly #end = deferred<CommandResult>();
  #web: WebStreams | undefined;
  #exit: ExecExit | undefined;
  #failed = false;
  #abandoned: GuestError | undefined;

  /**
   * @param hasStdin whether writes to `stdin`, and its end, are sent to the command
   * @throws GuestError if the call cannot be made
   */
  constructor(wire: ExecWire, hasStdin: boolean) {
    this.#wire = wire;
    const resumeIfRoom = (): void => this.#resumeIfRoom();
    const parts = { onRoom: resumeIfRoom, onRead: wire.onRead, onLeft: () => this.onLeft() };
    this.#outputs = { stdout: new OutputStream(parts), stderr: new OutputStream(parts) };
    this.stdout = this.#outputs.stdout;
    this.stderr = this.#outputs.stderr;
    this.answered = this.#start.promise;
    this.started = this.answered.then(({ pid }) => pid);
    // Callers need not await these promises, so mark their rejections as handled.
    this.started.catch(() => undefined);
    this.#end.promise.catch((error: unknown) => this.#closeStreams(error));
    this.stdin = inputStream(wire, hasStdin, (reason) => this.#abandon(reason));
    wire.open({
      frame: (frame) => this.#receive(frame),
      ended: () => this.#ended(),
      failed: (error) => this.#fail(this.#abandoned ?? error),
      unread: (output) => this.#outputs[output].readableLength,
    });
    if (!hasStdin) this.stdin.end();
  }

  /** The command's streams as web streams. Use either these or the Node streams. */
  get web(): WebStreams {
    this.#web ??= {
      stdin: writableStream(this.stdin),
      stdout: readableStream(this.stdout),
      stderr: readableStream(this.stderr),
    };
    return this.#web;
  }

  /** Sets the terminal's size. Throws GuestError unless both numbers are integers from 0 to 65535. */
  resize(cols: number, rows: number): void {
    // Check here: an invalid size would make the agent end the call, and with it the command.
    const size = (value: number, field: string): number => wholeNumber(value, field, LARGEST_SIZE);
    this.#wire.send({ case: "resize", value: { cols: size(cols, "cols"), rows: size(rows, "rows") } });
  }

  /**
   * Sends a signal to the command's process group; its name, or its number in the guest. `wait` says when the command
   * has ended. Throws GuestError.
   */
  kill(signal: number | SignalName = "SIGTERM"): void {
    this.#wire.send({ case: "signal", value: { number: signalNumber(signal) } });
  }

  /** Cancels the call, after which the agent sends SIGHUP to the command's session, and SIGKILL 5 s later. */
  cancel(): void {
    this.#wire.cancel();
  }

  /**
   * Iterates over the lines of an output, as text (UTF-8) without line ends. Leaving the loop ends the command, like a
   * loop over the stream. Fails with RESOURCE_EXHAUSTED at a line of more than 100 MB.
   */
  async *lines({ from = "stdout" }: LinesOptions = {}): AsyncGenerator<string, undefined, undefined> {
    const decoder = new StringDecoder("utf8");
    // Pieces are joined only at a line end: adding each piece to the line would copy a long line again and again.
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

  /** Iterates over the lines of standard output, as `lines` does. */
  [Symbol.asyncIterator](): AsyncGenerator<string, undefined, undefined> {
    return this.lines();
  }

  /** Ends the command, as `cancel` does, unless it has ended; resolves when the call is over. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#exit === undefined) this.cancel();
    await this.#end.promise.catch(() => undefined);
  }

  /** Resolves with the command's result once the streams have received all of its output. Rejects with GuestError. */
  wait(): Promise<CommandResult> {
    return this.#end.promise;
  }

  /** Called when the reader leaves a loop over an output. Does nothing after the command's end. */
  protected onLeft(): void {
    if (this.#exit !== undefined || this.#failed) return;
    this.#abandoned = failure(
      "CANCELLED",
      "STREAM_LEFT",
      "the loop over the command's output was left, which ended the command",
    );
    this.#wire.cancel();
  }

  #receive(frame: ExecFrame["frame"]): void {
    if (frame.case === "started") this.#start.resolve(frame.value);
    else if (frame.case === "stdout" || frame.case === "stderr") {
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
    this.#outputs.stdout.push(null);
    this.#outputs.stderr.push(null);
    this.stdin.destroy();
    this.#end.resolve(resultOf(this.#exit));
  }

  #fail(error: GuestError): void {
    this.#failed = true;
    this.#start.reject(error);
    this.#end.reject(error);
  }

  /**
   * Cancels a command whose input source has failed: it would otherwise run with only part of its input. Does nothing
   * after the command's end.
   */
  #abandon(cause: Error): void {
    if (this.#exit !== undefined || this.#failed) return;
    const message = `the source of the command's standard input failed: ${cause.message}`;
    this.#abandoned = failure("FAILED_PRECONDITION", "SOURCE_FAILED", message, cause);
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

/** Options of `lines`. */
export interface LinesOptions {
  /** The output to read. Default: "stdout". */
  readonly from?: "stdout" | "stderr" | undefined;
}

/** Limit on the characters of a line, so that a command that writes no line ends cannot fill the memory. */
const LONGEST_LINE = 100_000_000;

function withoutReturn(line: string): string {
  return line.endsWith("\r") ? line.slice(0, -1) : line;
}

/** Limit on the columns and rows of a terminal (struct winsize, ioctl_tty(2)). */
const LARGEST_SIZE = 65_535;
