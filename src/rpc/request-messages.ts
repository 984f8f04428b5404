import type { ServerHttp2Stream } from "node:http2";
import { AgentError } from "../domain/index.ts";
import { MessageReader } from "./framing.ts";
import { MessageBuffers } from "./message-buffers.ts";

/** Bytes at which reading pauses while nobody asks for a message. The stream's own buffer holds some more. */
const PAUSE_AT_BYTES = 64 * 1024;
/** A request of more than this is a large one. Below the above, so that also one that is not read becomes known. */
const LARGE_REQUEST_BYTES = 32 * 1024;
/** What a held message costs beside its bytes, so that a flood of empty ones is bounded too. */
const MESSAGE_OVERHEAD_BYTES = 64;

/**
 * The messages of a request as a pull iterator over the HTTP/2 stream. While nobody asks for the next one the stream is
 * paused, its flow-control window stays shut, and the client has to wait.
 */
export class RequestMessages implements AsyncIterableIterator<Uint8Array> {
  readonly #stream: ServerHttp2Stream;
  readonly #buffers = new MessageBuffers();
  readonly #reader: MessageReader;
  readonly #queue: Uint8Array[] = [];
  readonly #onLargeRequest: (stream: ServerHttp2Stream) => void;
  #queuedBytes = 0;
  #receivedBytes = 0;
  #attached = false;
  #paused = false;
  #ended = false;
  #discarded = false;
  #failure: AgentError | undefined;
  #wake: (() => void) | undefined;

  constructor(stream: ServerHttp2Stream, limitBytes: number, onLargeRequest: (stream: ServerHttp2Stream) => void) {
    this.#stream = stream;
    this.#onLargeRequest = onLargeRequest;
    this.#reader = new MessageReader(limitBytes, this.#buffers);
  }

  /** The client has half-closed and all that it sent has been read. */
  get complete(): boolean {
    return this.#ended && !this.#discarded;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    for (;;) {
      const message = this.#queue.shift();
      if (message !== undefined) {
        this.#queuedBytes -= message.length + MESSAGE_OVERHEAD_BYTES;
        return { done: false, value: message };
      }
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#ended) return { done: true, value: undefined };
      this.#read();
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Takes back a message that is no longer looked at. */
  recycle(message: Uint8Array): void {
    this.#buffers.giveBack(message);
  }

  return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.discard();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** Ends the iteration with an error that overtakes the messages held; a refused message waits for its turn. */
  fail(error: AgentError): void {
    if (this.#discarded) return;
    this.#failure ??= error;
    this.#drop();
  }

  /** Ends the iteration. What still comes is read and thrown away, so that the stream can close. */
  discard(): void {
    this.#discarded = true;
    this.#ended = true;
    this.#drop();
    if (this.#attached) this.#stream.off("data", this.#onData);
    this.#stream.resume();
  }

  #drop(): void {
    this.#queue.length = 0;
    this.#queuedBytes = 0;
    this.#wakeUp();
  }

  #read(): void {
    if (!this.#attached) {
      this.#attached = true;
      this.#stream.on("data", this.#onData);
      this.#stream.once("end", this.#onEnd);
    } else if (this.#paused) {
      this.#paused = false;
      this.#stream.resume();
    }
  }

  readonly #onData = (chunk: Uint8Array): void => {
    if (this.#failure !== undefined || this.#ended) return;
    const known = this.#receivedBytes > LARGE_REQUEST_BYTES;
    this.#receivedBytes += chunk.length;
    if (!known && this.#receivedBytes > LARGE_REQUEST_BYTES) this.#onLargeRequest(this.#stream);
    try {
      this.#reader.push(chunk, this.#deliver);
    } catch (error) {
      this.#refuse(error);
    }
    if (this.#queue.length > 0 || this.#failure !== undefined) this.#wakeUp();
    const asked = this.#wake !== undefined;
    const heldBytes = this.#queuedBytes + this.#reader.heldBytes;
    if (this.#failure !== undefined || (!asked && heldBytes >= PAUSE_AT_BYTES)) {
      this.#paused = true;
      this.#stream.pause();
    }
  };

  readonly #deliver = (message: Uint8Array): void => {
    this.#queue.push(message);
    this.#queuedBytes += message.length + MESSAGE_OVERHEAD_BYTES;
  };

  readonly #onEnd = (): void => {
    if (this.#failure !== undefined || this.#ended) return;
    try {
      this.#reader.end();
      this.#ended = true;
    } catch (error) {
      this.#refuse(error);
    }
    this.#wakeUp();
  };

  #refuse(error: unknown): void {
    if (!(error instanceof AgentError)) throw error;
    this.#failure = error;
  }

  #wakeUp(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}
