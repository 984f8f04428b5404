import { frameOrder, type Incoming, type LentBytes } from "../../domain/index.ts";
import type { Files, ReadOutput } from "../../files/index.ts";
import {
  type ReadFileRequest,
  WriteFileRequestSchema,
  type WriteFileResponse,
} from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import type { Call } from "../call.ts";
import { chunkFrame, decodeData, headerOf, readRequest, writeResponse } from "./file-messages.ts";

const CUT = "the request ended before a message with last, which the header announces with marks_last";

/** Serves one ReadFile call: the file, chunk by chunk. */
export async function serveReadFile(files: Files, request: ReadFileRequest, call: Call): Promise<void> {
  const send: ReadOutput = (bytes, attributes, release) => call.send(chunkFrame(bytes, attributes), release);
  await files.read(readRequest(request), send, call);
}

/** Serves one WriteFile call: a header, then the content. */
export async function serveWriteFile(files: Files, call: Call): Promise<WriteFileResponse> {
  const messages = call.messages();
  const first = await messages.next();
  const { request, marksLast } = headerOf(first && call.decode(WriteFileRequestSchema, first));
  return writeResponse(await files.write(request, content(messages.each, marksLast), call));
}

/** The content's pieces: views of messages. */
function content(each: Incoming<LentBytes>, marksLast: boolean): Incoming<LentBytes> {
  return (take, over) => {
    let isComplete = false;
    each(
      (message) => {
        if (isComplete) throw frameOrder("a message after the one that says last");
        const { bytes, last } = decodeData(message.bytes);
        isComplete = last;
        return take({ bytes, release: () => message.release() });
      },
      (failure) => {
        // A cancelled client may end its request before it resets it: then the content is not complete.
        const isCut = failure === undefined && marksLast && !isComplete;
        over(isCut ? frameOrder(CUT) : failure);
      },
    );
  };
}
