import type { Readable, Writable } from "node:stream";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientDuplexStream, ServiceError } from "@grpc/grpc-js";
import { type ExecExit, type ExecFrame, ExecFrameSchema } from "../../gen/svc/guest/v1alpha1/exec_pb.ts";
import { cancelledBy } from "../channel.ts";
import { GuestError, guestError } from "../errors.ts";
import { settlement } from "../settlement.ts";
import { type ExecCommand, type ExecResult, resultOf, startMessage } from "./command.ts";
import { inputStream } from "./input-stream.ts";
import { OutputStream } from "./output-stream.ts";

type ExecCall = ClientDuplexStream<ExecFrame, ExecFrame>;
type Frame = NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>;

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
  readonly #call: ExecCall;
  readonly #outputs: { readonly stdout: OutputStream; readonly stderr: OutputStream };
  readonly #start = settlement<number>();
  readonly #end = settlement<ExecResult>();
  readonly #result: Promise<ExecResult>;
  #exit: ExecExit | undefined;

  constructor(call: ExecCall, command: ExecCommand, signal: AbortSignal | undefined) {
    this.#call = call;
    const resumeIfRoom = (): void => this.#resumeIfRoom();
    this.#outputs = { stdout: new OutputStream(resumeIfRoom), stderr: new OutputStream(resumeIfRoom) };
    this.stdout = this.#outputs.stdout;
    this.stderr = this.#outputs.stderr;
    this.started = this.#start.promise;
    this.#result = cancelledBy(signal, call, this.#end.promise);
    // Whoever does not ask does not want to know; whoever asks is told.
    this.started.catch(() => undefined);
    this.#result.catch((error: unknown) => this.#closeStreams(error));
    this.#listen(signal);
    this.#send({ case: "start", value: startMessage(command) });
    const hasStdin = command.stdin === true || command.terminal !== undefined;
    this.stdin = inputStream({
      stdin: (bytes, sent) => this.#send({ case: "stdin", value: bytes }, sent),
      stdinClose: () => {
        if (hasStdin) this.#send({ case: "stdinClose", value: {} });
      },
    });
    if (!hasStdin) this.stdin.end();
  }

  /** Sets the terminal's size. */
  resize(cols: number, rows: number): void {
    this.#send({ case: "resize", value: { cols, rows } });
  }

  /** Sends a signal, by its number, to the command's process group. */
  signal(number: number): void {
    this.#send({ case: "signal", value: { number } });
  }

  /** Gives the call up: the agent hangs up on the command. */
  cancel(): void {
    this.#call.cancel();
  }

  /** Resolves with the command's end, once all of its output has been handed to the streams. Rejects with GuestError. */
  wait(): Promise<ExecResult> {
    return this.#result;
  }

  #listen(signal: AbortSignal | undefined): void {
    this.#call.on("data", (message: ExecFrame) => this.#receive(message.frame));
    this.#call.on("error", (error: ServiceError) => this.#fail(guestError(error, signal)));
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
    this.#start.reject(error);
    this.#end.reject(error);
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
