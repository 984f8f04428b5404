import { frameOrder, type Incoming, type BorrowedBytes } from "../../domain/index.ts";
import type { Files, HoleOutput, ReadOutput } from "../../files/index.ts";
import {
  type ReadFileRequest,
  WriteFileRequestSchema,
  type WriteFileResponse,
} from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import type { Call } from "../call.ts";
import { chunkFrame, decodeData, headerOf, holeFrame, readRequest, writeResponse } from "./file-messages.ts";

const CUT = "the header has marks_last, but the request ended before a message with `last`";

/** Serves ReadFile. Chunks after the first are sent without copying; their buffers are reused afterwards. */
export async function serveReadFile(files: Files, request: ReadFileRequest, call: Call): Promise<void> {
  const output: ReadOutput = (bytes, attributes, release) => call.send(chunkFrame(bytes, attributes), release);
  const hole: HoleOutput = (sizeBytes, attributes) => {
    call.send(holeFrame(sizeBytes, attributes));
    return call.drained();
  };
  await files.read(readRequest(request), { output, hole }, call);
}

/** Serves WriteFile, whose request is a header followed by the content. */
export async function serveWriteFile(files: Files, call: Call): Promise<WriteFileResponse> {
  const messages = call.messages();
  const first = await messages.next();
  const { request, marksLast } = headerOf(first && call.decode(WriteFileRequestSchema, first));
  return writeResponse(await files.write(request, content(messages.each, marksLast), call));
}

/** The chunks of the content. They are views of messages, which the receiver must release. */
function content(each: Incoming<BorrowedBytes>, marksLast: boolean): Incoming<BorrowedBytes> {
  return (take, over) => {
    let isComplete = false;
    each(
      (message) => {
        if (isComplete) throw frameOrder("no message may follow the one with `last`");
        const { bytes, last } = decodeData(message.bytes);
        isComplete = last;
        return take({ bytes, release: () => message.release() });
      },
      (failure) => {
        // A client that cancels a call may half-close the request before it resets the stream. So a request that ended
        // without an error may still be incomplete. Only the missing `last` shows this.
        const isCut = failure === undefined && marksLast && !isComplete;
        over(isCut ? frameOrder(CUT) : failure);
      },
    );
  };
}
