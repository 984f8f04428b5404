import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientWritableStream } from "@grpc/grpc-js";
import type { ReadableStream } from "node:stream/web";
import {
  type WriteFileHeaderSchema,
  type WriteFileRequest,
  WriteFileRequestSchema,
  type WriteFileResponse,
} from "../../gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type CallOptions, cancelCall, type Channel } from "../channel.ts";
import { ANSWERED, type UntilAnswered, untilAnswered } from "./race.ts";

/** Largest piece of a file in one message. */
const CHUNK_BYTES = 256 * 1024;

/** How a file is written, apart from its path and content. */
export type WriteFileOptions = Omit<MessageInitShape<typeof WriteFileHeaderSchema>, "path" | "$typeName" | "$unknown">;

/** Where content comes from: bytes, a stream of Node or of the web, or anything else that gives bytes one by one. */
export type FileSource = Uint8Array | AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>;

/** Size and SHA-256 of what was written. */
export type WriteFileResult = Pick<WriteFileResponse, "bytesWritten" | "sha256">;

/** Writes a file atomically from bytes or from a stream of them. Throws GuestError, or what the stream throws. */
export async function writeFile(
  channel: Channel,
  header: MessageInitShape<typeof WriteFileHeaderSchema>,
  content: FileSource,
  options: CallOptions = {},
): Promise<WriteFileResult> {
  const { requests, response } = channel.clientStream(GuestAgent.method.writeFile, options);
  const sent = send(requests, response, header, content).catch((error: unknown) => {
    // A part of the content must not become the file.
    cancelCall(requests);
    throw error;
  });
  const [answer] = await Promise.all([response, sent]);
  return { bytesWritten: answer.bytesWritten, sha256: answer.sha256 };
}

/** Sends header and content, as far as the agent wants them: an early answer (a refused header) closes the source. */
async function send(
  requests: ClientWritableStream<WriteFileRequest>,
  response: Promise<unknown>,
  header: MessageInitShape<typeof WriteFileHeaderSchema>,
  content: FileSource,
): Promise<void> {
  const orAnswer = untilAnswered(response);
  const write = (message: NonNullable<MessageInitShape<typeof WriteFileRequestSchema>["message"]>) =>
    orAnswer(
      new Promise<void>((resolve) => {
        requests.write(create(WriteFileRequestSchema, { message }), () => resolve());
      }),
    );
  await write({ case: "header", value: header });
  for await (const part of taken(content, orAnswer)) {
    for (let start = 0; start < part.length; start += CHUNK_BYTES) {
      const data = part.subarray(start, start + CHUNK_BYTES);
      if ((await write({ case: "data", value: data })) === ANSWERED) return;
    }
  }
  requests.end();
}

/** What a source gives until the answer comes, which need not wait for a source that has nothing to give. */
async function* taken(source: FileSource, orAnswer: UntilAnswered): AsyncGenerator<Uint8Array, void, undefined> {
  if (source instanceof Uint8Array) {
    yield source;
    return;
  }
  const parts = source[Symbol.asyncIterator]();
  let isFinished = false;
  try {
    for (;;) {
      const next = await orAnswer(parts.next());
      if (next === ANSWERED) return;
      if (next.done === true) {
        isFinished = true;
        return;
      }
      yield next.value;
    }
  } finally {
    // Not awaited: a generator answers only when what it waits for has come.
    if (!isFinished) parts.return?.(undefined).catch(() => undefined);
  }
}
