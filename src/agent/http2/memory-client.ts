import { addAbortSignal, type Duplex } from "node:stream";
import { FrameReader, type FrameHandler } from "./frame-reader.ts";
import { type Fields, HpackEncoder } from "./hpack.ts";
import { Output } from "./output.ts";
import { Flag, FrameType, PREFACE } from "./protocol.ts";

export interface ClientRequest {
  readonly fields: Fields;
  /** The request's body, at most as long as the initial window of a connection. */
  readonly body: Uint8Array;
  /** Whether more of the body follows. */
  readonly isOpen: boolean;
}

/**
 * An HTTP/2 client over a stream in memory, for the warm-up. It ignores flow control and drops the responses. It
 * answers SETTINGS and PINGs, so that the server can close the connection as usual.
 */
export class MemoryClient implements FrameHandler {
  readonly #socket: Duplex;
  readonly #output = new Output();
  readonly #reader = new FrameReader(this, { expectsPreface: false });
  readonly #unanswered = new Set<number>();
  /** Stream of the DATA frame that is being read. */
  #dataStream = 0;
  #serverEnds = false;

  constructor(socket: Duplex) {
    this.#socket = socket;
  }

  /**
   * Sends the requests. Resolves when either side has closed the connection. Rejects with the signal's reason, the
   * socket's error, or for an invalid frame.
   */
  async send(requests: readonly ClientRequest[], signal: AbortSignal): Promise<void> {
    this.#output.copy(PREFACE);
    this.#output.frame(FrameType.SETTINGS, 0, 0, 0, 0);
    const encoder = new HpackEncoder();
    for (const [n, { fields, body, isOpen }] of requests.entries()) {
      const stream = 2 * n + 1;
      const block = encoder.encode(fields);
      this.#output.frame(FrameType.HEADERS, Flag.END_HEADERS, stream, block.length, 0);
      this.#output.copy(block);
      this.#output.frame(FrameType.DATA, isOpen ? 0 : Flag.END_STREAM, stream, body.length, 0);
      this.#output.copy(body);
      this.#unanswered.add(stream);
    }
    this.#flush();
    for await (const bytes of addAbortSignal(signal, this.#socket).iterator({ destroyOnReturn: false })) {
      this.#reader.push(bytes as Buffer);
      this.#flush();
    }
  }

  dataBegins(streamId: number): void {
    this.#dataStream = streamId;
  }

  data(): void {}

  dataEnds(flags: number): void {
    this.#answered(flags, this.#dataStream);
  }

  frame(type: number, flags: number, streamId: number, payload: Buffer): void {
    if (type === FrameType.HEADERS) this.#answered(flags, streamId);
    if (type === FrameType.RST_STREAM) this.#unanswered.delete(streamId);
    if (type === FrameType.GOAWAY) this.#serverEnds = true;
    if ((flags & Flag.ACK) !== 0) return;
    if (type === FrameType.SETTINGS) this.#output.frame(FrameType.SETTINGS, Flag.ACK, 0, 0, 0);
    if (type === FrameType.PING) this.#output.ping(Flag.ACK, payload);
  }

  #answered(flags: number, streamId: number): void {
    if ((flags & Flag.END_STREAM) !== 0) this.#unanswered.delete(streamId);
  }

  #flush(): void {
    const batch = this.#output.take();
    if (!this.#socket.writable) return;
    if (batch !== undefined) this.#socket.write(Buffer.concat(batch.chunks), batch.release);
    if (this.#unanswered.size === 0 && !this.#serverEnds) this.#socket.end();
  }
}
