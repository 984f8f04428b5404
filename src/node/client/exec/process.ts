import type { Readable, Writable } from "node:stream";
import type { ExecExit, ExecFrame, ExecStarted } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { wholeNumber } from "../arguments.ts";
import { failure, type GuestError } from "../errors.ts";
import { deferred } from "../deferred.ts";
import { readableStream, writableStream } from "../web-streams.ts";
import { type ExecResult, resultOf, type SignalName, signalNumber } from "./command.ts";
import { inputStream, OutputStream } from "./streams.ts";
import type { ExecWire } from "./wire.ts";
import type { CallOptions } from "../channel.ts";

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
 * the other one, and the command.
 */
export class ExecProcess {
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
  readonly #end = deferred<ExecResult>();
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
    this.#outputs = {
      stdout: new OutputStream(resumeIfRoom, wire.onRead),
      stderr: new OutputStream(resumeIfRoom, wire.onRead),
    };
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

  /** Sends a signal, given by name or by its number in the guest, to the command's process group. Throws GuestError. */
  signal(signal: number | SignalName): void {
    this.#wire.send({ case: "signal", value: { number: signalNumber(signal) } });
  }

  /** Cancels the call, after which the agent sends SIGHUP to the command's session. */
  cancel(): void {
    this.#wire.cancel();
  }

  /** Resolves with the command's result once the streams have received all of its output. Rejects with GuestError. */
  wait(): Promise<ExecResult> {
    return this.#end.promise;
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

/** Limit on the columns and rows of a terminal (struct winsize, ioctl_tty(2)). */
const LARGEST_SIZE = 65_535;

/** Default limit on the collected bytes of each output. */
const DEFAULT_MAX_OUTPUT_BYTES = 100_000_000;

/** Options of `run`. */
export interface RunOptions extends CallOptions {
  /** Standard input; text is sent as UTF-8. Default: /dev/null, or an empty input for a command in a terminal. */
  readonly input?: Uint8Array | string | undefined;
  /**
   * Limit on the collected bytes of each output. A command that writes more is cancelled, and the call rejects with
   * RESOURCE_EXHAUSTED. Default: 100 MB.
   */
  readonly maxOutputBytes?: number | undefined;
  /**
   * Called with each piece of standard output as it arrives. If it returns a promise, the next piece waits for it, and
   * so may the command. If it throws, the command is cancelled and the call rejects.
   */
  readonly onStdout?: ((piece: Buffer) => unknown) | undefined;
  /** Like `onStdout`, for standard error. */
  readonly onStderr?: ((piece: Buffer) => unknown) | undefined;
}

/** Result and output of a command. */
export interface RunResult extends ExecResult {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

/** Starts a command, sends its input and collects all of its output. Rejects with GuestError. */
export async function runToEnd(
  start: () => ExecProcess,
  { input, maxOutputBytes = DEFAULT_MAX_OUTPUT_BYTES, onStdout, onStderr }: RunOptions,
): Promise<RunResult> {
  const limit = wholeNumber(maxOutputBytes, "maxOutputBytes");
  const process = start();
  // A terminal always has an input: without an end of input, a command that reads it would wait indefinitely.
  process.stdin.end(input);
  const [result, stdout, stderr] = await Promise.all([
    process.wait(),
    collect(process, "stdout", limit, onStdout),
    collect(process, "stderr", limit, onStderr),
  ]);
  return { ...result, stdout, stderr };
}

/** Collects an output to its end. If the command fails, `wait()` reports it. */
async function collect(
  process: ExecProcess,
  name: "stdout" | "stderr",
  limit: number,
  onPiece: RunOptions["onStdout"],
): Promise<Buffer> {
  const stream: Readable = process[name];
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > limit) {
      process.cancel();
      const message = `the command wrote more than ${limit} bytes to ${name} and was cancelled; raise maxOutputBytes, or read its streams with exec`;
      throw failure("RESOURCE_EXHAUSTED", "OUTPUT_TOO_LARGE", message);
    }
    chunks.push(chunk);
    try {
      await onPiece?.(chunk);
    } catch (error) {
      process.cancel();
      throw error;
    }
  }
  return Buffer.concat(chunks);
}
