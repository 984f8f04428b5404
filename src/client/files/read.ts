import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceError } from "@grpc/grpc-js";
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import type { FileChunk, ReadFileRequestSchema, StatPathResponse } from "../../gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type CallOptions, cancelCall, cancelledBy, type Channel } from "../channel.ts";
import { settlement } from "../settlement.ts";
import { streamOf } from "../web-streams.ts";

const METHOD = GuestAgent.method.readFile;

/** The content of a file in the sandbox. Each method makes a call of its own, which fails with GuestError. */
export class FileContent implements AsyncIterable<Uint8Array> {
  /**
   * Attributes of the opened file, once it is being read; undefined where the agent sends none. Rejects with GuestError.
   */
  readonly attributes: Promise<StatPathResponse | undefined>;
  readonly #opened = settlement<StatPathResponse | undefined>();
  readonly #channel: Channel;
  readonly #request: MessageInitShape<typeof ReadFileRequestSchema>;
  readonly #options: CallOptions;

  constructor(channel: Channel, request: MessageInitShape<typeof ReadFileRequestSchema>, options: CallOptions = {}) {
    this.#channel = channel;
    this.#request = request;
    this.#options = options;
    this.attributes = this.#opened.promise;
    // A caller that ignores `attributes` gets the error with the content.
    this.attributes.catch(() => undefined);
  }

  /** Chunk by chunk, at the pace of the caller. Leaving the loop cancels the call. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      yield* this.#chunks();
      this.#opened.resolve(undefined);
    } catch (error) {
      this.#opened.reject(error);
      throw error;
    }
  }

  /** All of it, in memory. */
  async bytes(): Promise<Buffer> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  /** All of it as text, decoded as UTF-8. */
  async text(): Promise<string> {
    return (await this.bytes()).toString("utf8");
  }

  /** As a stream of Node. Destroying it cancels the call. */
  readable(): Readable {
    return Readable.from(this, { objectMode: false });
  }

  /** As a web stream. Cancelling it cancels the call. */
  stream(): ReadableStream<Uint8Array> {
    const chunks = this[Symbol.asyncIterator]();
    return streamOf(chunks, () => chunks.return());
  }

  async *#chunks(): AsyncGenerator<Uint8Array, void, undefined> {
    const { signal } = this.#options;
    const call = this.#channel.serverStream(METHOD, this.#request, this.#options);
    const ended = new Promise<void>((resolve) => {
      call.once("close", resolve);
    });
    void cancelledBy(signal, call, ended).catch(() => undefined);
    try {
      for await (const chunk of call as AsyncIterable<FileChunk>) {
        if (chunk.stat !== undefined) this.#opened.resolve(chunk.stat);
        if (chunk.data.length > 0) yield chunk.data;
      }
    } catch (error) {
      throw this.#channel.failure(error as ServiceError, METHOD, signal);
    } finally {
      cancelCall(call);
    }
  }
}
