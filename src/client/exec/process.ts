import type { Readable, Writable } from "node:stream";
import type { ReadableStream, WritableStream } from "node:stream/web";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientDuplexStream, ServiceError } from "@grpc/grpc-js";
import { type ExecExit, type ExecFrame, ExecFrameSchema } from "../../gen/svc/guest/v1alpha1/exec_pb.ts";
import { GuestAgent } from "../../gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { wholeNumber } from "../arguments.ts";
import { type CallOptions, cancelCall, cancelledBy, type Channel } from "../channel.ts";
import { GuestError } from "../errors.ts";
import { settlement } from "../settlement.ts";
import { readableStream, writableStream } from "../web-streams.ts";
import { type ExecCommand, type ExecResult, resultOf, type SignalName, signalNumber, startMessage } from "./command.ts";
import { inputStream, OutputStream } from "./streams.ts";

type ExecCall = ClientDuplexStream<ExecFrame, ExecFrame>;
type Outputs = Readonly<Record<"stdout" | "stderr", OutputStream>>;
type Frame = NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>;

const METHOD = GuestAgent.method.exec;

/** The streams of a command as web streams. */
export interface WebStreams {
  /** Aborting it gives the command up. */
  readonly stdin: WritableStream<Uint8Array>;
  /** Cancelling it drops the rest of the output. */
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
}

/**
 * A command in the sandbox. Both output streams share one call: read both (or `resume()` the one that does not matter),
 * or a full one holds the other up, and with it the command.
 */
export class ExecProcess {
  /** Standard input; already ended where the command has none. */
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** Empty with a terminal. */
  readonly stderr: Readable;
  /** Process id in the guest. Rejects with GuestError when the command could not be started. */
  readonly started: Promise<number>;
  readonly #channel: Channel;
  readonly #signal: AbortSignal | undefined;
  readonly #call: ExecCall;
  readonly #outputs: Outputs;
  readonly #start = settlement<number>();
  readonly #end = settlement<ExecResult>();
  readonly #result: Promise<ExecResult>;
  #web: WebStreams | undefined;
  #exit: ExecExit | undefined;
  #failed = false;
  #abandoned: GuestError | undefined;

  /** Throws GuestError where the channel is closed or the command cannot be sent. */
  constructor(channel: Channel, command: ExecCommand, options: CallOptions) {
    const start = startMessage(command);
    this.#channel = channel;
    this.#signal = options.signal;
    this.#call = channel.bidiStream(METHOD, options);
    const resumeIfRoom = (): void => this.#resumeIfRoom();
    this.#outputs = { stdout: new OutputStream(resumeIfRoom), stderr: new OutputStream(resumeIfRoom) };
    this.stdout = this.#outputs.stdout;
    this.stderr = this.#outputs.stderr;
    this.started = this.#start.promise;
    this.#result = cancelledBy(options.signal, this.#call, this.#end.promise);
    // Whoever does not ask does not want to know; whoever asks is told.
    this.started.catch(() => undefined);
    this.#result.catch((error: unknown) => this.#closeStreams(error));
    this.#listen();
    this.#send({ case: "start", value: start });
    const hasStdin = command.stdin === true || command.terminal !== undefined;
    this.stdin = inputStream({
      stdin: (bytes, sent) => this.#send({ case: "stdin", value: bytes }, sent),
      stdinClose: () => {
        if (hasStdin) this.#send({ case: "stdinClose", value: {} });
      },
      abandon: (reason) => this.#abandon(reason),
    });
    if (!hasStdin) this.stdin.end();
  }

  /** The streams of this command for code of the web. Use either these or those of Node. */
  get web(): WebStreams {
    this.#web ??= {
      stdin: writableStream(this.stdin),
      stdout: readableStream(this.stdout),
      stderr: readableStream(this.stderr),
    };
    return this.#web;
  }

  /** Sets the terminal's size. Throws GuestError for what is no whole number. */
  resize(cols: number, rows: number): void {
    this.#send({ case: "resize", value: { cols: wholeNumber(cols, "cols"), rows: wholeNumber(rows, "rows") } });
  }

  /** Sends a signal to the command's process group, by its name or by its number in the guest. Throws GuestError. */
  signal(signal: number | SignalName): void {
    this.#send({ case: "signal", value: { number: signalNumber(signal) } });
  }

  /** Gives the call up: the agent hangs up on the command. */
  cancel(): void {
    cancelCall(this.#call);
  }

  /** Resolves with the command's end, once all of its output has been handed to the streams. Rejects with GuestError. */
  wait(): Promise<ExecResult> {
    return this.#result;
  }

  #listen(): void {
    this.#call.on("data", (message: ExecFrame) => this.#receive(message.frame));
    this.#call.on("error", (error: ServiceError) =>
      this.#fail(this.#abandoned ?? this.#channel.failure(error, METHOD, this.#signal)),
    );
    this.#call.on("end", () => this.#ended());
  }

  #receive(frame: ExecFrame["frame"]): void {
    switch (frame.case) {
      case "started":
        this.#start.resolve(frame.value.pid);
        break;
      case "stdout":
      case "stderr":
        this.#outputs[frame.case].accept(frame.value);
        if (this.#outputs[frame.case].full) this.#call.pause();
        break;
      case "exit":
        this.#exit = frame.value;
        this.#call.end();
        break;
      case "start":
      case "stdin":
      case "stdinClose":
      case "resize":
      case "signal":
      case "attach":
      case "ack":
      case "forget":
      case "gap":
      case "stdinAck":
      case undefined:
        break;
    }
  }

  #ended(): void {
    if (this.#exit === undefined) {
      this.#fail(
        new GuestError({
          status: "INTERNAL",
          message: "the agent ended the call without saying how the command ended",
        }),
      );
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

  /** Without the rest of its input the command must not go on. After its end nothing is left to give up. */
  #abandon(cause: Error): void {
    if (this.#exit !== undefined || this.#failed) return;
    const message = `the source of the command's standard input failed: ${cause.message}`;
    this.#abandoned = new GuestError({ status: "CANCELLED", message, cause });
    cancelCall(this.#call);
  }

  #closeStreams(error: unknown): void {
    const reason = error instanceof Error ? error : undefined;
    for (const stream of [this.stdin, this.stdout, this.stderr]) stream.destroy(reason);
  }

  #resumeIfRoom(): void {
    if (!this.#outputs.stdout.full && !this.#outputs.stderr.full) this.#call.resume();
  }

  #send(frame: Frame, sent?: () => void): void {
    // grpc-js fails a call that is written to after its end; here it only means that the command was faster.
    if (this.#call.writable) this.#call.write(create(ExecFrameSchema, { frame }), sent);
    else sent?.();
  }
}
