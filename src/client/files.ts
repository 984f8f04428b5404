import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientWritableStream, ServiceError } from "@grpc/grpc-js";
import {
  type ReadFileRequestSchema,
  type WriteFileHeaderSchema,
  type WriteFileRequest,
  WriteFileRequestSchema,
  type WriteFileResponse,
} from "../gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type CallOptions, cancelledBy, type Channel } from "./channel.ts";
import { guestError } from "./errors.ts";

/** Largest piece of a file in one message. */
const CHUNK_BYTES = 256 * 1024;

/** How a file is written, apart from its path and content. */
export type WriteFileOptions = Omit<MessageInitShape<typeof WriteFileHeaderSchema>, "path" | "$typeName" | "$unknown">;

/** Size and SHA-256 of what was written. */
export type WriteFileResult = Pick<WriteFileResponse, "bytesWritten" | "sha256">;

/** Reads a file chunk by chunk. Throws GuestError. */
export async function* readFile(
  channel: Channel,
  request: MessageInitShape<typeof ReadFileRequestSchema>,
  options: CallOptions = {},
): AsyncGenerator<Uint8Array, void, undefined> {
  const call = channel.serverStream(GuestAgent.method.readFile, request, options);
  const ended = new Promise<void>((resolve) => {
    call.once("close", resolve);
  });
  void cancelledBy(options.signal, call, ended).catch(() => undefined);
  try {
    for await (const chunk of call as AsyncIterable<{ readonly data: Uint8Array }>) {
      if (chunk.data.length > 0) yield chunk.data;
    }
  } catch (error) {
    throw guestError(error as ServiceError, options.signal);
  } finally {
    call.cancel();
  }
}

/** Writes a file atomically from bytes or from a stream of them. Throws GuestError, or what the stream throws. */
export async function writeFile(
  channel: Channel,
  header: MessageInitShape<typeof WriteFileHeaderSchema>,
  content: Uint8Array | AsyncIterable<Uint8Array>,
  options: CallOptions = {},
): Promise<WriteFileResult> {
  const { requests, response } = channel.clientStream(GuestAgent.method.writeFile, options);
  const sent = send(requests, response, header, content).catch((error: unknown) => {
    // A part of the content must not become the file.
    requests.cancel();
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
  content: Uint8Array | AsyncIterable<Uint8Array>,
): Promise<void> {
  const answered = response.then(
    () => "answered" as const,
    () => "answered" as const,
  );
  const write = (message: NonNullable<MessageInitShape<typeof WriteFileRequestSchema>["message"]>) => {
    const written = new Promise<"written">((resolve) => {
      requests.write(create(WriteFileRequestSchema, { message }), () => resolve("written"));
    });
    return Promise.race([answered, written]);
  };
  await write({ case: "header", value: header });
  for await (const part of content instanceof Uint8Array ? [content] : content) {
    for (let start = 0; start < part.length; start += CHUNK_BYTES) {
      const data = part.subarray(start, start + CHUNK_BYTES);
      if ((await write({ case: "data", value: data })) === "answered") return;
    }
  }
  requests.end();
}
