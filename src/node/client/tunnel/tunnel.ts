import { Duplex } from "node:stream";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type ClientDuplexStream, type ServiceError, status, type StatusObject } from "@grpc/grpc-js";
import { Tunnel, type TunnelFrame, TunnelFrameSchema } from "../../../shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { wholeNumber } from "../arguments.ts";
import { type CallOptions, cancelCall, type Channel } from "../channel.ts";
import { GuestError } from "../errors.ts";
import { settlement } from "../settlement.ts";

const METHOD = Tunnel.method.open;
/** Largest piece in one frame, and in what waits: several reads of a socket. Messages over 256 KiB count as large for the agent. */
const CHUNK_BYTES = 192 * 1024;
/** Room before the bytes of a data frame, for its tag and length. */
const HEAD_ROOM: Buffer = Buffer.alloc(4);
/** Cost of a frame on top of its bytes (TunnelOpened.window_bytes). */
const FRAME_OVERHEAD_BYTES = 64;
/** Bytes that the agent may send ahead of the reader. */
const WINDOW_BYTES = 1024 * 1024;

type FrameInit = NonNullable<MessageInitShape<typeof TunnelFrameSchema>["frame"]>;

/**
 * A connection to a port or unix socket of the guest, like a net.Socket. Ending it ends one direction, destroying it
 * breaks it off; what listens in the guest learns of either. Fails with GuestError, by the `error` event. Each tunnel
 * has a call of its own, and none holds up another.
 */
export class GuestTunnel extends Duplex implements Disposable {
  /** Resolves once it is connected in the guest. Rejects with GuestError. Earlier writes wait. */
  readonly opened: Promise<void>;
  readonly #call: ClientDuplexStream<TunnelFrame, TunnelFrame>;
  /** The end of the call: why it failed, or null. */
  readonly #over: Promise<GuestError | null>;
  readonly #opening = settlement<undefined>();
  /** Bytes that may be sent now, as the agent counts them. */
  #window = 0;
  #onWindow: (() => void) | undefined;
  /** Counted bytes that have arrived, and how many of them were returned to the agent's window. */
  #cameBytes = 0;
  #returnedBytes = 0;

  /** Throws GuestError for a target that is neither port nor path, a closed client, and an aborted signal. */
  constructor(channel: Channel, target: number | string, options: CallOptions) {
    super({ writableHighWaterMark: CHUNK_BYTES });
    this.opened = this.#opening.promise;
    // Callers need not await this promise: the stream reports the failure too.
    this.opened.catch(() => undefined);
    this.#call = channel.bidiStream(METHOD, options, encoded);
    this.#call.on("data", ({ frame }: TunnelFrame) => this.#receive(frame));
    this.#over = new Promise((resolve) => {
      this.#call.on("status", ({ code }: StatusObject) => code === status.OK && resolve(null));
      this.#call.on("error", (error: ServiceError) => {
        void channel.explained(error, METHOD, options.signal, (failure) => {
          resolve(failure);
          super.destroy(failure);
        });
      });
    });
    const open =
      typeof target === "number"
        ? ({ case: "port", value: wholeNumber(target, "port") } as const)
        : ({ case: "path", value: target } as const);
    this.#send({ case: "open", value: { target: open, windowBytes: WINDOW_BYTES } });
  }

  /** Readable calls this when it can take more: passes waiting bytes on. */
  override read(sizeBytes?: number): unknown {
    const bytes: unknown = super.read(sizeBytes);
    this.#returnWindow();
    return bytes;
  }

  /** Nothing to request: bytes arrive as the window allows. */
  override _read(): void {}

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: () => void): void {
    void this.#sendAll([bytes], done);
  }

  /** Sends what waited together. */
  override _writev(waiting: { chunk: Buffer }[], done: () => void): void {
    const pieces = waiting.map(({ chunk }) => chunk);
    void this.#sendAll(pieces, done);
  }

  override _final(done: () => void): void {
    this.#send({ case: "end", value: {} }, done);
  }

  /** Also breaks off a tunnel of which both directions have ended, and whose last bytes nobody takes in the guest. */
  override destroy(error?: Error): this {
    if (this.destroyed) cancelCall(this.#call);
    return super.destroy(error);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const early = new GuestError({ status: "CANCELLED", message: "the tunnel was closed before it was open" });
    this.#opening.reject(error instanceof GuestError ? error : early);
    this.#onWindow?.();
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

  /** Not before the agent ends the call: the last bytes may still be in flight. */
  async #closeAfterCall(done: (error: Error | null) => void): Promise<void> {
    done(await this.#over);
  }

  #receive(frame: TunnelFrame["frame"]): void {
    if (this.destroyed) return;
    if (frame.case === "data") {
      this.#cameBytes += frame.value.length + FRAME_OVERHEAD_BYTES;
      this.push(frame.value);
      this.#returnWindow();
    } else if (frame.case === "end") this.push(null);
    else if (frame.case === "opened") {
      this.#opening.resolve(undefined);
      this.#widen(frame.value.windowBytes);
    } else if (frame.case === "window") this.#widen(frame.value.bytes);
  }

  /** Acknowledges read bytes to the agent in large steps. */
  #returnWindow(): void {
    const takenBytes = this.#cameBytes - this.readableLength - this.#returnedBytes;
    if (takenBytes * 2 < WINDOW_BYTES) return;
    this.#returnedBytes += takenBytes;
    this.#send({ case: "window", value: { bytes: takenBytes } });
  }

  #widen(bytes: number): void {
    this.#window += bytes;
    this.#onWindow?.();
  }

  async #sendAll(pieces: readonly Buffer[], done: () => void): Promise<void> {
    const memory = Buffer.concat([HEAD_ROOM, ...pieces]);
    for (let at = HEAD_ROOM.length; at < memory.length && !this.destroyed;) {
      if (this.#window <= FRAME_OVERHEAD_BYTES) {
        await new Promise<void>((resolve) => {
          this.#onWindow = resolve;
        });
        continue;
      }
      const value = memory.subarray(at, at + Math.min(CHUNK_BYTES, this.#window - FRAME_OVERHEAD_BYTES));
      this.#window -= value.length + FRAME_OVERHEAD_BYTES;
      at += value.length;
      await new Promise<void>((sent) => this.#send({ case: "data", value }, sent));
    }
    done();
  }

  #send(frame: FrameInit, sent?: () => void): void {
    // grpc-js fails a call that is written to after its end; the call's own error says why it ended.
    if (this.#call.writable) this.#call.write(create(TunnelFrameSchema, { frame }), () => sent?.());
    else sent?.();
  }
}

function encoded(message: TunnelFrame): Buffer {
  const { frame } = message;
  return frame.case === "data" ? dataFrame(frame.value) : Buffer.from(toBinary(TunnelFrameSchema, message));
}

/** Writes tag and length (protobuf's encoding) into the memory before the bytes, which is room, or bytes that were sent. */
function dataFrame({ buffer, byteOffset, length }: Uint8Array): Buffer {
  const headBytes = length < 0x80 ? 2 : length < 0x4000 ? 3 : 4;
  const frame = Buffer.from(buffer, byteOffset - headBytes, headBytes + length);
  frame[0] = (TunnelFrameSchema.field.data.number << 3) | 2;
  for (let at = 1; at < headBytes; at++) frame[at] = (length >> (7 * (at - 1))) | (at < headBytes - 1 ? 0x80 : 0);
  return frame;
}
