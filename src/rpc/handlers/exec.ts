import type { Mutex } from "../../domain/index.ts";
import { type Exec, type ExecInput, ExecInputOrder, type ExecRequest } from "../../exec/index.ts";
import type { RawCall } from "../context.ts";
import { decodeInput, exitFrame, outputFrame, startedFrame } from "./exec-frames.ts";
import { decodeStart } from "./exec-start.ts";

/** A start with more than usual arguments and variables. */
const LARGE_START_BYTES = 64 * 1024;

/**
 * Serves one Exec call: frames in, frames out.
 *
 * @param largeStarts shared by all calls
 */
export function serveExec(exec: Exec, call: RawCall, largeStarts: Mutex): Promise<void> {
  const messages = call.messages()[Symbol.asyncIterator]();
  const output = {
    started: (pid: number): void => call.send(startedFrame(pid)),
    output: (stream: "stdout" | "stderr", bytes: Uint8Array, release: () => void): void =>
      call.send(outputFrame(stream, bytes), release),
    exit: (result: Parameters<typeof exitFrame>[0]): void => call.send(exitFrame(result)),
  };
  // No async function here: its variables would keep the request, up to 4 MiB, for as long as the command runs.
  return readStart(messages, largeStarts).then((request) =>
    exec.run(request, inputs(messages, new ExecInputOrder(request), call), output, call.signal),
  );
}

/** Of large ones one at a time is taken apart: a hundred at once would be a hundred times their memory. */
async function readStart(messages: AsyncIterator<Uint8Array>, largeStarts: Mutex): Promise<ExecRequest> {
  const first = await messages.next();
  const message = first.done === true ? undefined : first.value;
  const read = (): Promise<ExecRequest> => decodeStart(message);
  return message !== undefined && message.length > LARGE_START_BYTES ? largeStarts.run(read) : read();
}

async function* inputs(
  messages: AsyncIterator<Uint8Array>,
  order: ExecInputOrder,
  call: RawCall,
): AsyncGenerator<ExecInput> {
  for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
    const message = next.value;
    const input = decodeInput(message);
    order.check(input);
    yield input.kind === "stdin" ? { ...input, release: () => call.recycle(message) } : input;
  }
}
