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
import { cancelCall, type Channel, encoded } from "../grpc/channel.ts";
import { failure, type GuestError, invalidOption } from "../errors/errors.ts";
import type { Names } from "../options.ts";
import { plain, type Plain } from "../plain.ts";
import {
  beneathFields,
  defined,
  type GuestPath,
  numbers,
  pathFields,
  PLACE,
  type PlaceOptions,
  timeField,
} from "./path.ts";

/** Limit on the bytes of content in one message. */
const CHUNK_BYTES = 256 * 1024;

/** Options of `writeFile`. */
export interface WriteFileOptions extends PlaceOptions {
  /** Permission bits. Default: the bits of the replaced file; 0o644 for a new file. */
  readonly mode?: number | undefined;
  /** User id of the owner. Default: the owner of the replaced file; for a new file, the workload's user. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /**
   * Required size of the content. If the content has another size, the write fails with SIZE_MISMATCH. Default: for
   * bytes or text, their size; for a stream, any size.
   */
  readonly size?: number | undefined;
  /**
   * Required SHA-256 of the content. If the content has a different SHA-256, the write fails with CHECKSUM_MISMATCH.
   * Default: no check.
   */
  readonly sha256?: Uint8Array | undefined;
  /** Create missing parent directories. Default: false. */
  readonly parents?: boolean | undefined;
  /**
   * "w" (default): replace a file that exists. "wx": fail with ALREADY_EXISTS if the path exists. There is no "a",
   * because files are written as a whole; the comment of `Files` has a command that appends.
   */
  readonly flag?: "w" | "wx" | undefined;
  /** Modification time. Default: now. */
  readonly mtime?: Date | undefined;
  /** Nanoseconds of `mtime` since its last full second. Default: taken from the milliseconds of `mtime`. */
  readonly mtimeNanos?: number | undefined;
  /** Write blocks of zeros as holes. Default: false. */
  readonly sparse?: boolean | undefined;
  /** Do not compute the SHA-256 of the content; `sha256` of the result is then empty. Default: false. */
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
  flag: true,
  mtime: true,
  mtimeNanos: true,
  sparse: true,
  skipSha256: true,
};

/** The command that appends its input to a file. */
const APPEND = `["sh", "-c", 'cat >> "$1"', "sh", path]`;

/** Bytes, or text that is written as UTF-8. */
type Content = Uint8Array | string;

/** Content to write: bytes or text, a Node or web stream, or any other async iterable of bytes or text. */
export type FileSource = Content | AsyncIterable<Content> | ReadableStream<Content>;

/**
 * Size and SHA-256 of the written content. With `skipSha256`, the SHA-256 is empty, unless the agent is too old for
 * that option.
 */
export type WriteFileResult = Plain<WriteFileResponse>;

/** Writes a file atomically. Rejects with GuestError; if the source failed, its error is the cause. */
export async function writeFile(
  channel: Channel,
  path: GuestPath,
  content: FileSource,
  options: WriteFileOptions = {},
): Promise<WriteFileResult> {
  // Send the size if it is known, because the agent then needs fewer steps for a small file.
  const size = content instanceof Uint8Array ? content.length : sizeOfText(content);
  const header = headerOf(path, { ...options, size: options.size ?? size });
  encoded(WriteFileRequestSchema, { message: { case: "header", value: header } });
  const { requests, response } = channel.clientStream(GuestAgent.method.writeFile, options);
  const sent = send(requests, response, header, content).catch((error: unknown) => {
    // Cancel the call, because the agent would otherwise store the partial content as the whole file.
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
  checkOptions("the options of writeFile()", options, WRITE);
  const { mode, uid, gid, sha256, size, mtime, mtimeNanos, parents: createParents, ...rest } = options;
  const { flag = "w", sparse, skipSha256, beneath, noSymlinks } = rest;
  if (flag !== "w" && flag !== "wx")
    throw invalidOption(
      "flag",
      `flag must be "w" or "wx", not ${JSON.stringify(flag)}, because files are written as a whole; to append, run a command: run(${APPEND}, { input })`,
    );
  return {
    ...pathFields(path),
    ...beneathFields({ beneath, noSymlinks }),
    ...numbers({ mode, uid, gid }),
    ...defined({ sha256, createParents, exclusive: flag === "wx", sparse, skipSha256 }),
    ...defined({ size: offsetOf(size, "size"), mtime: mtime && timeField(mtime, mtimeNanos) }),
  };
}

/**
 * Sends the header and the content until the agent answers. If the agent answers early, for example because it refuses
 * the header, this function closes the source.
 */
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
  // Mark the last message, because the end of the request does not prove that all content was sent: if a call is
  // cancelled, node:http2 first ends the request, and then resets it.
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

/**
 * Yields the source's pieces until the agent answers. Once the answer has arrived, does not wait for a slow source any
 * more.
 */
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
    // Do not await the source's `return`: a generator runs `return` only after its pending `next`, which may never
    // settle.
    if (!isFinished) parts.return?.(undefined).catch(() => undefined);
  }
}

/** Returns the source's iterator. Checks the type, because JavaScript callers may pass anything. */
function iteratorOf(source: Partial<AsyncIterable<Content>> | null): AsyncIterator<Content> {
  const parts = source?.[Symbol.asyncIterator]?.();
  return parts ?? failed(new TypeError("it must be bytes, text, or a stream of bytes or text"));
}

function bytesOf(content: Content): Uint8Array {
  if (content instanceof Uint8Array) return content;
  if (typeof content === "string") return Buffer.from(content);
  return failed(new TypeError("it yielded something that is neither bytes nor text"));
}

/** Throws a GuestError because the source of the content has failed. `cause` is the source's own error. */
function failed(cause: unknown): never {
  throw sourceFailure("the file's content", cause);
}

/** Creates the GuestError for a source that has failed. The source's error becomes the cause. */
export function sourceFailure(what: string, cause: unknown): GuestError {
  return failure("FAILED_PRECONDITION", "SOURCE_FAILED", `the source of ${what} failed: ${messageOf(cause)}`, cause);
}

/** `UntilAnswered` resolves with this value if the agent answers before the promise settles. */
export const ANSWERED: unique symbol = Symbol("answered");

/**
 * Waits for a promise, or for the agent's final answer if that arrives first. Resolves with ANSWERED in the second
 * case.
 */
export type UntilAnswered = <Value>(promise: Promise<Value>) => Promise<Value | typeof ANSWERED>;

/**
 * Creates an UntilAnswered for the agent's answer. Does not use Promise.race: until `answer` settles, each race would
 * keep its value in memory.
 */
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
