import type { MessageInitShape } from "@bufbuild/protobuf";
import { Readable } from "node:stream";
import type { FileChunk, ReadFileRequestSchema } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { Piece } from "../../tar/index.ts";
import { checkOptions, offsetOf } from "../arguments.ts";
import type { CallOptions, Channel } from "../channel.ts";
import { received } from "../received.ts";
import { deferred } from "../deferred.ts";
import { failure, type GuestError } from "../errors.ts";
import type { Names } from "../options.ts";
import { attributesOf, type PathAttributes } from "./attributes.ts";
import { beneathFields, defined, type GuestPath, pathFields, PLACE, type PlaceOptions } from "./path.ts";

/** Options of `readFile`. */
export interface ReadFileOptions extends PlaceOptions {
  /** Offset of the first byte. Default: 0. */
  readonly offset?: number | undefined;
  /** Number of bytes. Default: all to the end. */
  readonly length?: number | undefined;
}

/** The largest file size (off_t). */
const MAX_SIZE_BYTES = 2n ** 63n - 1n;
/** Larger holes are split: a piece has a number, which is exact up to 2^53. */
const MOST_HOLE_BYTES = 2n ** 52n;

const READ: Names<ReadFileOptions> = { ...PLACE, offset: true, length: true };

/** The content of a file in the sandbox. Each method makes its own call, which fails with GuestError. */
export class FileContent implements AsyncIterable<Uint8Array> {
  /**
   * Attributes of the file; resolves once it is being read, with undefined if the agent sends none. Rejects with
   * GuestError.
   */
  readonly attributes: Promise<PathAttributes | undefined>;
  readonly #opened = deferred<PathAttributes | undefined>();
  readonly #channel: Channel;
  readonly #request: MessageInitShape<typeof ReadFileRequestSchema>;
  readonly #options: CallOptions;

  constructor(channel: Channel, path: GuestPath, options: ReadFileOptions = {}) {
    checkOptions("the options of readFile", options, READ);
    const { offset, length } = options;
    this.#channel = channel;
    this.#request = {
      ...pathFields(path),
      ...beneathFields(options),
      ...defined({ offset: offsetOf(offset, "offset"), length: offsetOf(length, "length") }),
    };
    this.#options = options;
    this.attributes = this.#opened.promise;
    // A caller that ignores `attributes` gets the error from the content.
    this.attributes.catch(() => undefined);
  }

  /** Iterates over the chunks at the pace of the caller. Leaving the loop cancels the call. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Uint8Array> {
    return this.#received(({ data }) => (data.length > 0 ? [data] : []), false);
  }

  /**
   * Iterates over the chunks and holes, so that the zeros of a sparse file are not transferred. Agents before 0.4.0
   * send them as chunks.
   */
  pieces(): AsyncIterableIterator<Piece> {
    return this.#received<Piece>(({ data, hole }) => {
      const pieces: Piece[] = data.length > 0 ? [Buffer.from(data.buffer, data.byteOffset, data.length)] : [];
      for (let left = hole; left > 0n; left -= MOST_HOLE_BYTES)
        pieces.push({ holeBytes: Number(left < MOST_HOLE_BYTES ? left : MOST_HOLE_BYTES) });
      return pieces;
    }, true);
  }

  #received<Value>(decode: (chunk: FileChunk) => Value[], holes: boolean): AsyncIterableIterator<Value> {
    const opened = this.#opened;
    const { length = 0n } = this.#request;
    const limitBytes = length === 0n ? MAX_SIZE_BYTES : length;
    let bytes = 0n;
    return received(this.#channel, GuestAgent.method.readFile, { ...this.#request, holes }, this.#options, {
      decode: (chunk) => {
        const { stat, data, hole } = chunk;
        if (stat !== undefined) opened.resolve(attributesOf(stat));
        if (hole > 0n && !holes) throw untrue("a hole that was not asked for");
        bytes += BigInt(data.length) + hole;
        // Surplus bytes would end up in whatever follows in an archive or in the caller's file.
        if (bytes > limitBytes) throw untrue(`more bytes than the ${limitBytes} that were asked for`);
        return decode(chunk);
      },
      onEnd: (error) => (error === undefined ? opened.resolve(undefined) : opened.reject(error)),
    });
  }

  /** Reads the whole content into memory. */
  async bytes(): Promise<Buffer> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  /** Reads the whole content as UTF-8 text. */
  async text(): Promise<string> {
    return (await this.bytes()).toString("utf8");
  }

  /** Returns a Node stream. Destroying it cancels the call. */
  readable(): Readable {
    return Readable.from(this, { objectMode: false });
  }

  /** Returns a web stream. Cancelling it cancels the call. */
  stream(): ReadableStream<Uint8Array> {
    return ReadableStream.from(this);
  }
}

/** Creates the error for an answer that no real agent sends: hostile code in the sandbox may have replaced the agent. */
function untrue(what: string): GuestError {
  return failure("DATA_LOSS", "ANSWER_UNREADABLE", `invalid answer from the sandbox: it has ${what}`);
}
