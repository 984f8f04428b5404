import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientDuplexStream, ServiceError } from "@grpc/grpc-js";
import { type ExecFrame, ExecFrameSchema } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type CallOptions, cancelCall, type Channel } from "../channel.ts";
import type { GuestError } from "../errors.ts";
import { discardLateWrites } from "../internals/grpc-js.ts";

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

/** A frame that waits, and what runs once the next may follow. */
interface HeldFrame {
  readonly frame: Frame;
  readonly sent: (() => void) | undefined;
}

/** One Exec call. */
export class ExecCall implements ExecWire {
  readonly #channel: Channel;
  readonly #signal: AbortSignal | undefined;
  readonly #call: ClientDuplexStream<ExecFrame, ExecFrame>;
  /**
   * Frames after the first, which wait for the call's HTTP/2 stream: only a known stream can discard what is written
   * after the command's end. Undefined once it is known, or the call has ended.
   */
  #held: HeldFrame[] | undefined = [];

  /**
   * @param first the frame that it begins with
   * @throws GuestError once the channel is closed or the signal is aborted
   */
  constructor(channel: Channel, options: CallOptions, first: Frame) {
    this.#channel = channel;
    this.#signal = options.signal;
    this.#call = channel.bidiStream(METHOD, options);
    this.#write({ frame: first, sent: undefined });
    this.#call.once("metadata", () => {
      if (this.#held !== undefined) discardLateWrites(this.#call);
      this.#release((held) => this.#write(held));
    });
    this.#call.once("status", () => this.#release(({ sent }) => sent?.()));
  }

  open(listener: ExecListener): void {
    let isBegun = false;
    this.#call.on("data", (message: ExecFrame) => {
      isBegun = true;
      listener.frame(message.frame);
    });
    let isOver = false;
    const end = (tell: () => void): void => {
      // A failed call emits "end" as well.
      if (!isOver) tell();
      isOver = true;
    };
    this.#call.on("error", (error: ServiceError) =>
      end(
        () =>
          void this.#channel.explained(error, METHOD, this.#signal, (failure) =>
            listener.failed(isBegun ? failure.ofBegunCall() : failure),
          ),
      ),
    );
    this.#call.on("end", () => end(() => listener.ended()));
  }

  send(frame: Frame, sent?: () => void): void {
    if (this.#held !== undefined && discardLateWrites(this.#call)) this.#release((held) => this.#write(held));
    if (this.#held === undefined) this.#write({ frame, sent });
    else this.#held.push({ frame, sent });
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

  #write({ frame, sent }: HeldFrame): void {
    // grpc-js fails a call that is written to after its end; here that only means that the command ended first.
    if (this.#call.writable) this.#call.write(create(ExecFrameSchema, { frame }), sent);
    else sent?.();
  }

  #release(pass: (held: HeldFrame) => void): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const each of held) pass(each);
  }
}
