import type { ClientHttp2Stream } from "node:http2";
import type { ClientDuplexStream } from "@grpc/grpc-js";
import { streamOf } from "../grpc/internals/grpc-js.ts";
import { TunnelFrameSchema } from "../../../shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";

/** The first byte of a data frame: protobuf field number and wire type. */
const DATA_TAG = (TunnelFrameSchema.field.data.number << 3) | 2;
/** Size of the prefix of a gRPC message: compression flag and length. */
const PREFIX_BYTES = 5;
/** Name of the event with which this class passes bytes on to the listeners of grpc-js. */
const FOR_GRPC = "bytes for grpc-js";

/**
 * Reads and writes the data frames of a tunnel directly on the call's HTTP/2 stream, which is faster than grpc-js.
 * grpc-js still handles all other frames (docs/decisions/0012).
 */
export class DataFrames {
  readonly #stream: ClientHttp2Stream;
  readonly #onBytes: (bytes: Buffer, isLast: boolean) => void;
  /** The first bytes of a message, until they show whether it is a data frame. */
  readonly #head: number[] = [];
  /** How many bytes of the current message have not arrived yet, and whether that message carries data. */
  #leftBytes = 0;
  #isData = false;
  /**
   * Number of messages that grpc-js has not delivered yet. While it is above 0, data frames also go through grpc-js, so
   * that their order is kept.
   */
  #undelivered = 0;

  private constructor(stream: ClientHttp2Stream, onBytes: (bytes: Buffer, isLast: boolean) => void) {
    this.#stream = stream;
    this.#onBytes = onBytes;
    for (const listener of stream.listeners("data")) stream.on(FOR_GRPC, listener as () => void);
    stream.removeAllListeners("data").on("data", (bytes: Buffer) => this.#take(bytes));
  }

  /**
   * Takes over the data frames of a call whose headers have arrived. `onBytes` receives the data as it arrives;
   * `isLast` is true for the last data of a frame. Returns undefined if the HTTP/2 stream cannot be found in this
   * version of grpc-js. In that case grpc-js handles all frames.
   */
  static of(
    call: ClientDuplexStream<never, unknown>,
    onBytes: (bytes: Buffer, isLast: boolean) => void,
  ): DataFrames | undefined {
    const stream = streamOf(call);
    if (stream === undefined) return undefined;
    const frames = new DataFrames(stream, onBytes);
    call.on("data", () => (frames.#undelivered -= 1));
    return frames;
  }

  /** Sends a data frame. `sent` is called once the bytes may be reused. */
  send(bytes: Buffer, sent?: () => void): void {
    const stream = this.#stream;
    // If the stream is not writable, the call has ended. Drop the frame without an error, because the call's status
    // already reports why it ended.
    if (!stream.writable) sent?.();
    else {
      stream.cork();
      stream.write(headOf(bytes.length));
      stream.write(bytes, () => sent?.());
      stream.uncork();
    }
  }

  #take(bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) {
      if (this.#leftBytes === 0) this.#readPrefixByte(bytes.readUInt8(at++));
      else {
        const part = bytes.subarray(at, at + this.#leftBytes);
        at += part.length;
        this.#leftBytes -= part.length;
        if (this.#isData) this.#onBytes(part, this.#leftBytes === 0);
        else this.#stream.emit(FOR_GRPC, part);
      }
    }
  }

  /**
   * Reads the next byte of a message's beginning. As soon as there are enough bytes, decides whether the message
   * contains a data frame and nothing else.
   */
  #readPrefixByte(byte: number): void {
    if (this.#head.push(byte) < PREFIX_BYTES) return;
    const head = Buffer.from(this.#head);
    const messageBytes = head.readUInt32BE(1);
    let lengthBytes = 1;
    while (messageBytes - 1 - lengthBytes >= 2 ** (7 * lengthBytes)) lengthBytes++;
    const dataBytes = Math.max(messageBytes - 1 - lengthBytes, 0);
    if (head.length < PREFIX_BYTES + messageBytes - dataBytes) return;
    this.#head.length = 0;
    this.#leftBytes = dataBytes;
    this.#isData = this.#undelivered === 0 && dataBytes > 0 && head.equals(headOf(dataBytes));
    if (this.#isData) return;
    this.#undelivered += 1;
    this.#stream.emit(FOR_GRPC, head);
  }
}

/** Returns the bytes before the data of a frame: gRPC prefix, tag and length. */
function headOf(dataBytes: number): Buffer {
  const length: number[] = [];
  let rest = dataBytes;
  for (; rest >= 0x80; rest >>>= 7) length.push((rest & 0x7f) | 0x80);
  const head = Buffer.from([0, 0, 0, 0, 0, DATA_TAG, ...length, rest]);
  head.writeUInt32BE((head.length - PREFIX_BYTES + dataBytes) >>> 0, 1);
  return head;
}
