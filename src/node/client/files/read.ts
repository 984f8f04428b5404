import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceError } from "@grpc/grpc-js";
import { Readable } from "node:stream";
import type { FileChunk, ReadFileRequestSchema } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type CallOptions, cancelCall, type Channel } from "../channel.ts";
import { GuestError } from "../errors.ts";
import { settlement } from "../settlement.ts";
import { attributesOf, type PathAttributes } from "./attributes.ts";

const METHOD = GuestAgent.method.readFile;

/** The content of a file in the sandbox. Each method makes a call of its own, which fails with GuestError. */
export class FileContent implements AsyncIterable<Uint8Array> {
  /**
   * Attributes of the opened file, once it is being read; undefined where the agent sends none. Rejects with GuestError.
   */
  readonly attributes: Promise<PathAttributes | undefined>;
  readonly #opened = settlement<PathAttributes | undefined>();
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
  [Symbol.asyncIterator](): AsyncIterableIterator<Uint8Array, undefined, undefined> {
    const left = new AbortController();
    const chunks = this.#chunks(left.signal);
    return {
      next: () => chunks.next(),
      return: () => {
        // A generator returns only after its pending step, which may wait for the file for ever.
        left.abort();
        return chunks.return(undefined);
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
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
    return ReadableStream.from(this);
  }

  async *#chunks(left: AbortSignal): AsyncGenerator<Uint8Array, undefined, undefined> {
    let cancel = (): void => undefined;
    try {
      const call = this.#channel.serverStream(METHOD, this.#request, this.#options);
      cancel = () => cancelCall(call);
      left.addEventListener("abort", cancel);
      for await (const chunk of call as AsyncIterable<FileChunk>) {
        if (chunk.stat !== undefined) this.#opened.resolve(attributesOf(chunk.stat));
        if (chunk.data.length > 0) yield chunk.data;
      }
      this.#opened.resolve(undefined);
    } catch (cause) {
      const { signal } = this.#options;
      const error =
        cause instanceof GuestError ? cause : await this.#channel.failure(cause as ServiceError, METHOD, signal);
      this.#opened.reject(error);
      throw error;
    } finally {
      cancel();
    }
  }
}
