import { frameOrder } from "../../domain/index.ts";
import type { Files, ReadOutput } from "../../files/index.ts";
import {
  type ReadFileRequest,
  WriteFileRequestSchema,
  type WriteFileResponse,
} from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import type { Call } from "../call.ts";
import { chunkFrame, decodeData, headerOf, readRequest, writeResponse } from "./file-messages.ts";

/** Serves one ReadFile call: the file, chunk by chunk. */
export async function serveReadFile(files: Files, request: ReadFileRequest, call: Call): Promise<void> {
  const send: ReadOutput = (bytes, attributes, release) => call.send(chunkFrame(bytes, attributes), release);
  await files.read(readRequest(request), send, call);
}

/** Serves one WriteFile call: a header, then the content. */
export async function serveWriteFile(files: Files, call: Call): Promise<WriteFileResponse> {
  const messages = call.messages()[Symbol.asyncIterator]();
  const first = await messages.next();
  const { request, marksLast } = headerOf(
    first.done === true ? undefined : call.decode(WriteFileRequestSchema, first.value),
  );
  const release = (piece: Uint8Array): void => call.release(piece);
  return writeResponse(await files.write(request, { pieces: data(messages, marksLast), release }, call));
}

/** The content's pieces: views of messages. */
async function* data(messages: AsyncIterator<Uint8Array>, marksLast: boolean): AsyncGenerator<Uint8Array> {
  let isComplete = false;
  for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
    if (isComplete) throw frameOrder("a message after the one that says last");
    const { bytes, last } = decodeData(next.value);
    isComplete = last;
    yield bytes;
  }
  // A cancelled client may end its request before it resets it: then the content is not complete.
  if (marksLast && !isComplete) {
    throw frameOrder("the request ended before a message with last, which the header announces with marks_last");
  }
}
