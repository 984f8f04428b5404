import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientDuplexStream, ServiceError } from "@grpc/grpc-js";
import { type ExecFrame, ExecFrameSchema } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type CallOptions, cancelCall, type Channel } from "../channel.ts";
import type { GuestError } from "../errors.ts";

const METHOD = GuestAgent.method.exec;

/** A frame to be sent. */
export type Frame = NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>;

/** Receiver of a wire's frames. Nothing follows `ended` or `failed`. */
export interface ExecListener {
  frame(frame: ExecFrame["frame"]): void;
  /** The agent has ended the call. */
  ended(): void;
  failed(error: GuestError): void;
  /** Arrived bytes of an output that were not read yet. */
  unread(output: "stdout" | "stderr"): number;
}

/** Carries the frames of a command. */
export interface ExecWire {
  /** Makes the call. Called once, before anything else. Throws GuestError if no call can be made. */
  open(listener: ExecListener): void;
  /** `sent` runs when the next frame may follow. */
  send(frame: Frame, sent?: () => void): void;
  /** Holds frames back until `resume`. */
  pause(): void;
  resume(): void;
  /** Nothing more will be sent. */
  finish(): void;
  /** Gives up: the listener's `failed` follows. */
  cancel(): void;
  /** Call it when output was read; absent: not needed. */
  readonly onRead?: (() => void) | undefined;
}

/** One Exec call. */
export class ExecCall implements ExecWire {
  readonly #channel: Channel;
  readonly #signal: AbortSignal | undefined;
  readonly #call: ClientDuplexStream<ExecFrame, ExecFrame>;

  /**
   * @param first the frame that it begins with
   * @throws GuestError once the channel is closed or the signal is aborted
   */
  constructor(channel: Channel, options: CallOptions, first: Frame) {
    this.#channel = channel;
    this.#signal = options.signal;
    this.#call = channel.bidiStream(METHOD, options);
    this.send(first);
  }

  open(listener: ExecListener): void {
    this.#call.on("data", (message: ExecFrame) => listener.frame(message.frame));
    let isOver = false;
    const end = (tell: () => void): void => {
      // A failed call emits "end" as well.
      if (!isOver) tell();
      isOver = true;
    };
    this.#call.on("error", (error: ServiceError) =>
      end(() => void this.#channel.explained(error, METHOD, this.#signal, (failure) => listener.failed(failure))),
    );
    this.#call.on("end", () => end(() => listener.ended()));
  }

  send(frame: Frame, sent?: () => void): void {
    // grpc-js fails a call that is written to after its end; here that only means that the command ended first.
    if (this.#call.writable) this.#call.write(create(ExecFrameSchema, { frame }), sent);
    else sent?.();
  }

  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  finish(): void {
    this.#call.end();
  }

  cancel(): void {
    cancelCall(this.#call);
  }
}
