import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientWritableStream } from "@grpc/grpc-js";
import { messageOf } from "../../../shared/errors.ts";
import {
  type WriteFileHeaderSchema,
  type WriteFileRequest,
  WriteFileRequestSchema,
  type WriteFileResponse,
  WriteFileResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { checkOptions, offsetOf } from "../arguments.ts";
import { cancelCall, type Channel, encoded } from "../channel.ts";
import { failure, type GuestError } from "../errors.ts";
import type { Names } from "../options.ts";
import { plain, type Plain } from "../plain.ts";
import { beneathFields, defined, type GuestPath, pathFields, PLACE, type PlaceOptions, timeField } from "./path.ts";

/** Largest piece of a file in one message. */
const CHUNK_BYTES = 256 * 1024;

/** Options of `writeFile`. */
export interface WriteFileOptions extends PlaceOptions {
  /** Permission bits. Default: those of the file that is replaced; 0o644 for a new one. */
  readonly mode?: number | undefined;
  /** Owner. Default: that of the file that is replaced; the workload's user for a new one. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Bytes that the content must have: SIZE_MISMATCH. Default: those of bytes and text, any number of a stream. */
  readonly size?: number | undefined;
  /** What the content must hash to: CHECKSUM_MISMATCH. Default: anything. */
  readonly sha256?: Uint8Array | undefined;
  /** Make missing folders above it. Default: false. */
  readonly parents?: boolean | undefined;
  /** Refuse with ALREADY_EXISTS when anything is there. Default: false. */
  readonly exclusive?: boolean | undefined;
  /** Time of the last modification. Default: now. */
  readonly mtime?: Date | undefined;
  /** Its nanoseconds within the second. Default: those of the Date. */
  readonly mtimeNanos?: number | undefined;
  /** Blocks of zeros become holes. Default: false. */
  readonly sparse?: boolean | undefined;
  /** Do not hash the content; `sha256` of the result is then empty. Default: false. */
  readonly skipSha256?: boolean | undefined;
}

const WRITE: Names<WriteFileOptions> = {
  ...PLACE,
  mode: true,
  uid: true,
  gid: true,
  size: true,
  sha256: true,
  parents: true,
  exclusive: true,
  mtime: true,
  mtimeNanos: true,
  sparse: true,
  skipSha256: true,
};

/** Bytes, or text that is written as UTF-8. */
type Content = Uint8Array | string;

/** Source of the content: bytes or text, a Node or web stream, or any other async iterable of them. */
export type FileSource = Content | AsyncIterable<Content> | ReadableStream<Content>;

/** Size and SHA-256 of the written content; the latter empty with `skipSha256`, unless the agent is too old. */
export type WriteFileResult = Plain<WriteFileResponse>;

/** Writes a file atomically. Rejects with GuestError; where the source failed, its error is the cause. */
export async function writeFile(
  channel: Channel,
  path: GuestPath,
  content: FileSource,
  options: WriteFileOptions = {},
): Promise<WriteFileResult> {
  // The agent writes a small file in fewer steps where it knows its size.
  const size = content instanceof Uint8Array ? content.length : sizeOfText(content);
  const header = headerOf(path, { ...options, size: options.size ?? size });
  encoded(WriteFileRequestSchema, { message: { case: "header", value: header } });
  const { requests, response } = channel.clientStream(GuestAgent.method.writeFile, options);
  const sent = send(requests, response, header, content).catch((error: unknown) => {
    // Cancel, so that a part of the content does not become the file.
    cancelCall(requests);
    throw error;
  });
  const [answer] = await Promise.all([response, sent]);
  return plain(WriteFileResponseSchema, answer);
}

function sizeOfText(content: FileSource): number | undefined {
  return typeof content === "string" ? Buffer.byteLength(content) : undefined;
}

function headerOf(path: GuestPath, options: WriteFileOptions): MessageInitShape<typeof WriteFileHeaderSchema> {
  checkOptions("the options of writeFile", options, WRITE);
  const { mode, uid, gid, sha256, size, mtime, mtimeNanos, parents: createParents, ...rest } = options;
  const { exclusive, sparse, skipSha256, beneath, noSymlinks } = rest;
  return {
    ...pathFields(path),
    ...beneathFields({ beneath, noSymlinks }),
    ...defined({ mode, uid, gid, sha256, createParents, exclusive, sparse, skipSha256 }),
    ...defined({ size: offsetOf(size, "size"), mtime: mtime && timeField(mtime, mtimeNanos) }),
  };
}

/** Sends header and content until the agent answers: an early answer (a refused header) closes the source. */
async function send(
  requests: ClientWritableStream<WriteFileRequest>,
  response: Promise<unknown>,
  header: MessageInitShape<typeof WriteFileHeaderSchema>,
  content: FileSource,
): Promise<void> {
  const orAnswer = untilAnswered(response);
  const write = (message: NonNullable<MessageInitShape<typeof WriteFileRequestSchema>["message"]>, last = false) =>
    orAnswer(
      new Promise<void>((resolve) => {
        requests.write(create(WriteFileRequestSchema, { message, last }), () => resolve());
      }),
    );
  // http2 ends the request of a cancelled call before it resets it, so an end alone does not mean that all was sent.
  await write({ case: "header", value: { ...header, marksLast: true } });
  for await (const part of taken(content, orAnswer)) {
    for (let start = 0; start < part.length; start += CHUNK_BYTES) {
      const data = part.subarray(start, start + CHUNK_BYTES);
      if ((await write({ case: "data", value: data })) === ANSWERED) return;
    }
  }
  await write({ case: "data", value: new Uint8Array() }, true);
  requests.end();
}

/** The source's pieces until the answer comes, even while the source has nothing to give. */
async function* taken(source: FileSource, orAnswer: UntilAnswered): AsyncGenerator<Uint8Array, void, undefined> {
  if (source instanceof Uint8Array || typeof source === "string") {
    yield bytesOf(source);
    return;
  }
  const parts = iteratorOf(source);
  let isFinished = false;
  try {
    for (;;) {
      const next = await orAnswer(parts.next().catch(failed));
      if (next === ANSWERED) return;
      if (next.done === true) {
        isFinished = true;
        return;
      }
      yield bytesOf(next.value);
    }
  } finally {
    // Not awaited: `return` of a generator settles only when its pending step has.
    if (!isFinished) parts.return?.(undefined).catch(() => undefined);
  }
}

/** The source's iterator. Checks the type, as programs without types may pass anything. */
function iteratorOf(source: Partial<AsyncIterable<Content>> | null): AsyncIterator<Content> {
  const parts = source?.[Symbol.asyncIterator]?.();
  return parts ?? failed(new TypeError("it is neither bytes, text nor a stream of them"));
}

function bytesOf(content: Content): Uint8Array {
  if (content instanceof Uint8Array) return content;
  if (typeof content === "string") return Buffer.from(content);
  return failed(new TypeError("it gave something that is neither bytes nor text"));
}

/** Throws a GuestError with the source's error as its cause. */
function failed(cause: unknown): never {
  throw sourceFailure("the file's content", cause);
}

/** The GuestError for what is to be sent, with the error of its source as the cause. */
export function sourceFailure(what: string, cause: unknown): GuestError {
  return failure("FAILED_PRECONDITION", "SOURCE_FAILED", `the source of ${what} failed: ${messageOf(cause)}`, cause);
}

/** Result for a value that did not come before the answer. */
export const ANSWERED: unique symbol = Symbol("answered");

/** Waits for a promise or the answer, whichever comes first. */
export type UntilAnswered = <Value>(promise: Promise<Value>) => Promise<Value | typeof ANSWERED>;

/** Not Promise.race: with a long-lived promise that would keep every value in memory. */
export function untilAnswered(answer: Promise<unknown>): UntilAnswered {
  let isAnswered = false;
  const waiting = new Set<() => void>();
  const answered = (): void => {
    isAnswered = true;
    for (const wake of waiting) wake();
  };
  answer.then(answered, answered);
  return (promise) =>
    new Promise((resolve, reject) => {
      const wake = (): void => resolve(ANSWERED);
      waiting.add(wake);
      promise.then(resolve, reject).finally(() => waiting.delete(wake));
      if (isAnswered) wake();
    });
}
