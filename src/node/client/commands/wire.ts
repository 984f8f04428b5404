import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientDuplexStream, ServiceError } from "@grpc/grpc-js";
import { type ExecFrame, ExecFrameSchema } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type CallOptions, cancelCall, type Channel } from "../grpc/channel.ts";
import type { GuestError } from "../errors/errors.ts";
import { deadlineExceeded } from "../grpc/grpc-texts.ts";
import { discardLateWrites, streamOf } from "../grpc/internals/grpc-js.ts";
import { TimeLimit } from "../time-limit.ts";

const METHOD = GuestAgent.method.exec;

/** A frame that the client sends to the agent in a call of Exec. */
export type Frame = NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>;

/** Receives the frames that the agent sends in a call of Exec. Nothing is called after `ended` or `failed`. */
export interface ExecListener {
  frame(frame: ExecFrame["frame"]): void;
  /** Called when the agent has ended the call. */
  ended(): void;
  failed(error: GuestError): void;
  /** Returns the number of received bytes of an output that its reader has not read yet. */
  unread(output: "stdout" | "stderr"): number;
}

/** Sends and receives the frames of a command. */
export interface ExecWire {
  /**
   * Starts to deliver frames to the listener. Must be called once, before all other methods. Throws GuestError if no
   * call can be made.
   */
  open(listener: ExecListener): void;
  /** Sends a frame. `sent` is called when the next frame may be sent. */
  send(frame: Frame, sent?: () => void): void;
  /** Stops delivering frames until `resume` is called. */
  pause(): void;
  resume(): void;
  /** Ends the sending direction of the call. */
  finish(): void;
  /** Cancels the call. The listener's `failed` is called afterwards. */
  cancel(): void;
  /** Must be called by the code that has read output. Undefined if this call does not count unread output. */
  readonly onRead?: (() => void) | undefined;
}

/** A queued frame. `sent` is called when the caller may send the next frame. */
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
   * Frames that wait until grpc-js has created the call's HTTP/2 stream. The first frame is not among them, because it
   * is sent at once. If the command ends early, the later frames must be discarded, which requires that stream (see
   * `discardLateWrites`). Undefined once the call has its stream or has ended.
   */
  #held: HeldFrame[] | undefined = [];
  /**
   * Set to the time limit, in milliseconds, when the call is cancelled because the agent has not answered in time.
   * Otherwise undefined.
   */
  #exceededMs: number | undefined;
  /** Whether the call's headers had been sent when the time limit cancelled the call. */
  #isSent = false;
  readonly #stopTimer: () => void;

  /**
   * @param options `requestTimeoutMs` limits only the wait for the agent's first frame. It does not become the deadline
   *   of the gRPC call, because that deadline would also end the running command
   * @param first the first frame of the call
   * @throws GuestError if the channel is closed or the signal is aborted
   */
  constructor(channel: Channel, options: CallOptions, first: Frame) {
    const { requestTimeoutMs, ...rest } = options;
    const limit = new TimeLimit(requestTimeoutMs);
    this.#channel = channel;
    this.#signal = options.signal;
    this.#call = channel.bidiStream(METHOD, rest);
    const timer = limit.timer(() => {
      this.#exceededMs = requestTimeoutMs;
      this.#isSent = this.#held === undefined || streamOf(this.#call) !== undefined;
      cancelCall(this.#call);
    });
    this.#stopTimer = () => clearTimeout(timer);
    this.#write({ frame: first, sent: undefined });
    this.#call.once("metadata", () => {
      if (this.#held !== undefined) discardLateWrites(this.#call);
      this.#release((held) => this.#write(held));
    });
    this.#call.once("status", () => {
      this.#stopTimer();
      this.#release(({ sent }) => sent?.());
    });
  }

  open(listener: ExecListener): void {
    let isBegun = false;
    this.#call.on("data", (message: ExecFrame) => {
      isBegun = true;
      this.#stopTimer();
      listener.frame(message.frame);
    });
    let isOver = false;
    const end = (tell: () => void): void => {
      // A failed call emits both "error" and "end". Report only the first of these events.
      if (!isOver) tell();
      isOver = true;
    };
    this.#call.on("error", (error: ServiceError) =>
      end(() => {
        const cause = this.#exceededMs === undefined ? error : deadlineExceeded(error, this.#exceededMs, this.#isSent);
        void this.#channel.explained(cause, METHOD, this.#signal, (failure) =>
          listener.failed(isBegun ? failure.ofBegunCall() : failure),
        );
      }),
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
    // If the call has ended, the command ended before the frame was sent, which is not an error. So drop the frame;
    // writing it would make grpc-js fail the call.
    if (this.#call.writable) this.#call.write(create(ExecFrameSchema, { frame }), sent);
    else sent?.();
  }

  #release(pass: (held: HeldFrame) => void): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const each of held) pass(each);
  }
}
