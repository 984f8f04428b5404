import type { MessageInitShape } from "@bufbuild/protobuf";
import { Readable } from "node:stream";
import type { FileChunk, ReadFileRequestSchema } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { Piece } from "../../tar/index.ts";
import { checkOptions, offsetOf } from "../arguments.ts";
import type { Channel } from "../grpc/channel.ts";
import { deferred } from "../deferred.ts";
import { failure, type GuestError, invalidOption } from "../errors/errors.ts";
import type { Names } from "../options.ts";
import { received } from "../grpc/received.ts";
import { readableStream } from "../web-streams.ts";
import { beneathFields, defined, type GuestPath, pathFields, PLACE, type PlaceOptions } from "./path.ts";
import { attributesOf, type FileAttributes } from "./stat.ts";

/** Options of `createReadStream`. */
export interface ReadOptions extends PlaceOptions {
  /** Offset of the first byte. Default: 0. */
  readonly offset?: number | undefined;
  /** Number of bytes to read. Default: Infinity. Both Infinity and 0 mean all bytes to the end of the file. */
  readonly length?: number | undefined;
}

/** Options of `readFile`. */
export interface ReadFileOptions extends ReadOptions {
  /**
   * Encoding of the content, such as "utf8". If it is given, the content is text. Default: none, so that the content is
   * bytes.
   */
  readonly encoding?: BufferEncoding | null | undefined;
}

const READ: Names<ReadOptions> = { ...PLACE, offset: true, length: true };
const READ_FILE: Names<ReadFileOptions> = { ...READ, encoding: true };

/** How many bytes a stream reads ahead of its reader. The agent sends pieces of this size. */
const AHEAD_BYTES = 256 * 1024;

/** The largest file size (off_t). */
const MAX_SIZE_BYTES = 2n ** 63n - 1n;
/**
 * Limit on the size of a hole, because JavaScript numbers are exact only up to 2^53. A larger hole is reported as
 * several holes.
 */
const MOST_HOLE_BYTES = 2n ** 52n;

type Received<Value> = AsyncIterableIterator<Value, undefined, undefined>;
type Opened = ReturnType<typeof deferred<FileAttributes | undefined>>;

/** The content of a file as a Node stream of bytes. The request is sent when the caller begins to read. */
export class GuestReadStream extends Readable {
  /**
   * Attributes of the opened file. Resolves as soon as the agent has sent them, or with undefined at the end of the
   * file if the agent sends none. Rejects with GuestError if the file cannot be read.
   */
  readonly attributes: Promise<FileAttributes | undefined>;
  readonly #chunks: Received<Uint8Array>;
  #web: ReadableStream<Uint8Array> | undefined;

  /** Throws GuestError if the options are invalid. */
  constructor(channel: Channel, path: GuestPath, options: ReadOptions = {}) {
    super({ highWaterMark: AHEAD_BYTES });
    checkOptions("the options of createReadStream()", options, READ);
    const opened = deferred<FileAttributes | undefined>();
    this.attributes = opened.promise;
    // Mark the rejection as handled: a caller that does not use `attributes` gets the same error when it reads the
    // content.
    this.attributes.catch(() => undefined);
    this.#chunks = fileChunks(channel, path, options, opened);
  }

  /** The same content as a web stream. Use either this or the Node stream. Cancelling it cancels the call. */
  get web(): ReadableStream<Uint8Array> {
    this.#web ??= readableStream(this);
    return this.#web;
  }

  override [Symbol.asyncIterator](): NodeJS.AsyncIterator<Buffer, undefined> {
    return super[Symbol.asyncIterator]() as NodeJS.AsyncIterator<Buffer, undefined>;
  }

  override _read(): void {
    this.#chunks.next().then(
      ({ done, value }) => {
        if (!this.destroyed) this.push(done === true ? null : value);
      },
      (error: unknown) => this.destroy(error as Error),
    );
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    void this.#chunks.return?.();
    done(error);
  }
}

/** Reads a whole file, or the range that `offset` and `length` select, into memory. Rejects with GuestError. */
export async function readFile(
  channel: Channel,
  path: GuestPath,
  options: BufferEncoding | ReadFileOptions | null = {},
): Promise<string | Buffer> {
  const given = typeof options === "string" ? { encoding: options } : (options ?? {});
  checkOptions("the options of readFile()", given, READ_FILE);
  const { encoding, ...read } = given;
  if (encoding !== undefined && encoding !== null && !Buffer.isEncoding(encoding))
    throw invalidOption("encoding", `${JSON.stringify(encoding)} is not an encoding; give "utf8", or none for bytes`);
  const chunks: Uint8Array[] = [];
  for await (const chunk of fileChunks(channel, path, read)) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  return encoding === undefined || encoding === null ? bytes : bytes.toString(encoding);
}

/** Implements Files.readPieces. */
export function readPieces(channel: Channel, path: GuestPath, options: ReadOptions = {}): Received<Piece> {
  checkOptions("the options of readPieces()", options, READ);
  const decode = ({ data, hole }: FileChunk): Piece[] => {
    const pieces: Piece[] = data.length > 0 ? [Buffer.from(data.buffer, data.byteOffset, data.length)] : [];
    for (let left = hole; left > 0n; left -= MOST_HOLE_BYTES)
      pieces.push({ holeBytes: Number(left < MOST_HOLE_BYTES ? left : MOST_HOLE_BYTES) });
    return pieces;
  };
  return receivedOf(channel, path, options, { decode, holes: true });
}

/** Iterates over a file's content at the pace of the caller. Leaving the loop cancels the call. */
function fileChunks(channel: Channel, path: GuestPath, options: ReadOptions, opened?: Opened): Received<Uint8Array> {
  const decode = ({ data }: FileChunk): Uint8Array[] => (data.length > 0 ? [data] : []);
  return receivedOf(channel, path, options, { decode, holes: false, opened });
}

interface Decoding<Value> {
  readonly decode: (chunk: FileChunk) => Value[];
  /** Whether the agent should report holes instead of sending their zeros. */
  readonly holes: boolean;
  readonly opened?: Opened | undefined;
}

function receivedOf<Value>(
  channel: Channel,
  path: GuestPath,
  { offset, length, ...options }: ReadOptions,
  { decode, holes, opened }: Decoding<Value>,
): Received<Value> {
  const lengthBytes = offsetOf(length === Number.POSITIVE_INFINITY ? undefined : length, "length");
  const request: MessageInitShape<typeof ReadFileRequestSchema> = {
    ...pathFields(path),
    ...beneathFields(options),
    ...defined({ offset: offsetOf(offset, "offset"), length: lengthBytes }),
    holes,
  };
  const limitBytes = lengthBytes === undefined || lengthBytes === 0n ? MAX_SIZE_BYTES : lengthBytes;
  let bytes = 0n;
  return received(channel, GuestAgent.method.readFile, request, options, {
    decode: (chunk) => {
      const { stat, data, hole } = chunk;
      if (stat !== undefined) opened?.resolve(attributesOf(stat));
      if (hole > 0n && !holes) throw untrue("a hole, although the request did not allow holes");
      bytes += BigInt(data.length) + hole;
      // Reject surplus bytes, because they would corrupt the caller's file, or the next entry of an archive.
      if (bytes > limitBytes) throw untrue(`more than the ${limitBytes} requested bytes`);
      return decode(chunk);
    },
    onEnd: (error) => (error === undefined ? opened?.resolve(undefined) : opened?.reject(error)),
  });
}

/**
 * Creates the error for an answer that a correct agent never sends. Hostile code in the sandbox may have replaced the
 * agent.
 */
function untrue(what: string): GuestError {
  return failure("DATA_LOSS", "ANSWER_UNREADABLE", `invalid answer from the sandbox: it has ${what}`);
}
