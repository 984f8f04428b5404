import { Duplex, Writable } from "node:stream";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type ClientDuplexStream, type ServiceError, status, type StatusObject } from "@grpc/grpc-js";
import { Tunnel, type TunnelFrame, TunnelFrameSchema } from "../../../shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { wholeNumber } from "../arguments.ts";
import { type CallOptions, cancelCall, type Channel } from "../grpc/channel.ts";
import { failure, GuestError } from "../errors/errors.ts";
import { deferred } from "../deferred.ts";
import { DataFrames } from "./data-frames.ts";
import { deadlineExceeded } from "../grpc/grpc-texts.ts";
import { discardLateWrites, streamOf } from "../grpc/internals/grpc-js.ts";
import { READ_BYTES } from "../grpc/internals/large-reads.ts";
import { TimeLimit } from "../time-limit.ts";

const METHOD = Tunnel.method.open;
/** Limit on the data in one frame. The agent treats messages over 256 KiB as large. */
const FRAME_BYTES = READ_BYTES;
/**
 * If a write has more pieces than this, they are copied into one buffer. Many pieces in one write are small, so copying
 * them is cheaper than sending a frame for each.
 */
const JOINED_PIECES = 16;
/**
 * Overhead of a frame. A frame with n bytes of data uses n + FRAME_OVERHEAD_BYTES of the WINDOW_BYTES
 * (TunnelOpened.window_bytes).
 */
const FRAME_OVERHEAD_BYTES = 64;
/**
 * Limit on the bytes in flight in each direction. From the agent: bytes that it has sent and the reader has not read.
 * To the agent: bytes that were written and that the agent has not accepted.
 */
const WINDOW_BYTES = 1024 * 1024;

type FrameInit = NonNullable<MessageInitShape<typeof TunnelFrameSchema>["frame"]>;

/**
 * A connection to a port or unix socket of the guest, with the interface of a net.Socket. `end()` closes one direction;
 * `destroy()` resets the connection. The process in the guest sees both. The `error` event reports errors as
 * GuestErrors. Each tunnel has its own call, so that a slow tunnel does not block others.
 */
export class GuestTunnel extends Duplex implements Disposable {
  /**
   * Resolves once the connection in the guest is open. Rejects with GuestError. Bytes that the caller has written by
   * then are sent at that moment.
   */
  readonly opened: Promise<void>;
  readonly #call: ClientDuplexStream<TunnelFrame, TunnelFrame>;
  /** Resolves when the call has ended: with its error, or with null if it succeeded. */
  readonly #over: Promise<GuestError | null>;
  readonly #opening = deferred<undefined>();
  /** How many bytes may be sent now. Like the agent, this counts frame overhead as well. */
  #window = 0;
  #frames: DataFrames | undefined;
  /** Bytes that must wait until the agent can receive more (`#window`), and the callback of their write. */
  #waiting: Buffer[] = [];
  #onSent = (): void => undefined;
  /**
   * Set to the time limit, in milliseconds, when the call is cancelled because the tunnel was not opened in time.
   * Otherwise undefined.
   */
  #exceededMs: number | undefined;
  /** Number of received bytes, including frame overhead. */
  #cameBytes = 0;
  /** How many of the received bytes have been reported to the agent as read. */
  #returnedBytes = 0;

  /**
   * @param options `requestTimeoutMs` is the time limit until the tunnel is open
   * @throws GuestError for an invalid target, a closed client, and an aborted signal
   */
  constructor(channel: Channel, target: number | string, options: CallOptions) {
    super({ writableHighWaterMark: WINDOW_BYTES });
    this.opened = this.#opening.promise;
    // Until the tunnel is open, a failure is reported both by `opened` and by the `error` event. Handle both here: the
    // caller may handle only one of them, and Node would end the program because of the other.
    const ignore = (): void => undefined;
    this.on("error", ignore);
    this.opened.then(
      () => this.off("error", ignore),
      () => undefined,
    );
    // Do not use `requestTimeoutMs` as the deadline of the gRPC call, because that deadline would also end a tunnel
    // that is already open.
    const { requestTimeoutMs, ...rest } = options;
    const limit = new TimeLimit(requestTimeoutMs);
    this.#call = channel.bidiStream(METHOD, rest);
    const timer = limit.timer(() => {
      this.#exceededMs = requestTimeoutMs;
      cancelCall(this.#call);
    });
    const stopTimer = (): void => clearTimeout(timer);
    this.opened.then(stopTimer, stopTimer);
    this.#call.once("metadata", () => {
      discardLateWrites(this.#call);
      this.#frames = DataFrames.of(this.#call, (bytes, isLast) => this.#arrive(bytes, isLast));
    });
    this.#call.on("data", ({ frame }: TunnelFrame) => this.#receive(frame));
    this.#over = new Promise((resolve) => {
      this.#call.on("status", ({ code }: StatusObject) => code === status.OK && resolve(null));
      this.#call.on("error", (error: ServiceError) => {
        const isSent = streamOf(this.#call) !== undefined;
        const cause = this.#exceededMs === undefined ? error : deadlineExceeded(error, this.#exceededMs, isSent);
        void channel.explained(cause, METHOD, options.signal, (why) => {
          resolve(why);
          super.destroy(why);
        });
      });
    });
    const open =
      typeof target === "number"
        ? ({ case: "port", value: wholeNumber(target, "port") } as const)
        : ({ case: "path", value: target } as const);
    this.#send({ case: "open", value: { target: open, windowBytes: WINDOW_BYTES } });
  }

  /**
   * Node calls this when the reader takes bytes. Reports these bytes to the agent as read, so that the agent may send
   * as many more.
   */
  override read(sizeBytes?: number): unknown {
    const bytes: unknown = super.read(sizeBytes);
    this.#returnWindow();
    return bytes;
  }

  /**
   * A frame arrives in parts of at most 16 KiB. Corks the destination, so that all parts that arrive in one tick of the
   * event loop are written in one system call.
   */
  override pipe<T extends NodeJS.WritableStream>(to: T, options?: { end?: boolean | undefined }): T {
    this.on("data", () => {
      if (!(to instanceof Writable) || to.writableCorked > 0) return;
      to.cork();
      setImmediate(() => to.uncork());
    });
    return super.pipe(to, options);
  }

  /** Requests nothing from the agent, because the agent sends bytes by itself, up to the size of the window. */
  override _read(): void {}

  override _writev(written: { chunk: Buffer }[], done: () => void): void {
    const pieces = written.map(({ chunk }) => chunk).filter(({ length }) => length > 0);
    this.#waiting = pieces.length > JOINED_PIECES ? [Buffer.concat(pieces)] : pieces;
    this.#onSent = done;
    if (pieces.length === 0) done();
    else this.#sendWaiting();
  }

  override _final(done: () => void): void {
    this.#send({ case: "end", value: {} }, done);
  }

  /** Resets the connection, even if both directions have ended and only the last bytes are still unread in the guest. */
  override destroy(error?: Error): this {
    if (this.destroyed) cancelCall(this.#call);
    return super.destroy(error);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const early = failure("CANCELLED", "TUNNEL_CLOSED", "the tunnel was closed before it was open");
    this.#opening.reject(error instanceof GuestError ? error : early);
    if (this.#waiting.splice(0).length > 0) this.#onSent();
    const isComplete = error === null && this.readableEnded && this.writableFinished;
    if (isComplete) {
      void this.#closeAfterCall(done);
      return;
    }
    cancelCall(this.#call);
    done(error);
  }

  [Symbol.dispose](): void {
    this.destroy();
  }

  /** Waits until the agent has ended the call, because the last bytes may be in flight until then. */
  async #closeAfterCall(done: (error: Error | null) => void): Promise<void> {
    done(await this.#over);
  }

  #receive(frame: TunnelFrame["frame"]): void {
    if (this.destroyed) return;
    if (frame.case === "data") this.#arrive(frame.value, true);
    else if (frame.case === "end") this.push(null);
    else if (frame.case === "opened") {
      this.#opening.resolve(undefined);
      this.#widen(frame.value.windowBytes);
    } else if (frame.case === "window") this.#widen(frame.value.bytes);
  }

  #arrive(bytes: Uint8Array, isLast: boolean): void {
    if (this.destroyed) return;
    this.#cameBytes += bytes.length + (isLast ? FRAME_OVERHEAD_BYTES : 0);
    this.push(bytes);
    this.#returnWindow();
  }

  /**
   * Reports to the agent how many bytes the reader has read, so that the agent may send as many more. To send few
   * frames, reports only when the reader has read at least half a window.
   */
  #returnWindow(): void {
    const takenBytes = this.#cameBytes - this.readableLength - this.#returnedBytes;
    if (takenBytes * 2 < WINDOW_BYTES) return;
    this.#returnedBytes += takenBytes;
    this.#send({ case: "window", value: { bytes: takenBytes } });
  }

  #widen(bytes: number): void {
    this.#window += bytes;
    this.#sendWaiting();
  }

  /** Sends as many of the waiting bytes as the window allows. */
  #sendWaiting(): void {
    for (let first; (first = this.#waiting[0]) !== undefined && this.#window > FRAME_OVERHEAD_BYTES;) {
      const bytes = first.subarray(0, Math.min(FRAME_BYTES, this.#window - FRAME_OVERHEAD_BYTES));
      if (bytes.length < first.length) this.#waiting[0] = first.subarray(bytes.length);
      else this.#waiting.shift();
      this.#window -= bytes.length + FRAME_OVERHEAD_BYTES;
      const sent = this.#waiting.length === 0 ? this.#onSent : undefined;
      if (this.#frames === undefined) this.#send({ case: "data", value: bytes }, sent);
      else this.#frames.send(bytes, sent);
    }
  }

  #send(frame: FrameInit, sent?: () => void): void {
    // Do not write after the call's end: grpc-js would report that write as the failure, and hide the error that says
    // why the call ended.
    if (this.#call.writable) this.#call.write(create(TunnelFrameSchema, { frame }), () => sent?.());
    else sent?.();
  }
}
