import type { FileCaller, Files } from "../../files/index.ts";
import type { ReadFileRequest, WriteFileResponse } from "../../gen/svc/guest/v1alpha1/files_pb.ts";
import type { RawCall } from "../context.ts";
import { chunkFrame, decodeData, decodeHeader, readRequest, writeResponse } from "./file-messages.ts";

/** Serves one ReadFile call: the file, chunk by chunk. */
export async function serveReadFile(files: Files, request: ReadFileRequest, call: RawCall): Promise<void> {
  const output: Parameters<Files["read"]>[1] = {
    chunk: (bytes, attributes, release) => call.send(chunkFrame(bytes, attributes), release),
  };
  await files.read(readRequest(request), output, callerOf(call));
}

/** Serves one WriteFile call: a header, then the content. */
export async function serveWriteFile(files: Files, call: RawCall): Promise<WriteFileResponse> {
  const messages = call.messages()[Symbol.asyncIterator]();
  const first = await messages.next();
  const request = decodeHeader(first.done === true ? undefined : first.value);
  return writeResponse(await files.write(request, data(messages, call), callerOf(call)));
}

function callerOf(call: RawCall): FileCaller {
  return { connection: call.session, signal: call.signal, giveUp: (error) => call.giveUp(error) };
}

/** Whoever asks for the next piece has done with the one before. */
async function* data(messages: AsyncIterator<Uint8Array>, call: RawCall): AsyncGenerator<Uint8Array> {
  for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
    yield decodeData(next.value);
    call.recycle(next.value);
  }
}
