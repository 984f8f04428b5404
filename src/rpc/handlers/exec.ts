import { type ExecInput, ExecInputOrder, type ExecRequest } from "../../domain/index.ts";
import type { Exec } from "../../exec/index.ts";
import type { RawCall } from "../context.ts";
import { decodeInput, decodeStart, exitFrame, outputFrame, startedFrame } from "./exec-frames.ts";

/** Serves one Exec call: frames in, frames out. */
export async function serveExec(exec: Exec, call: RawCall): Promise<void> {
  const messages = call.messages()[Symbol.asyncIterator]();
  const first = await messages.next();
  const request = decodeStart(first.done === true ? undefined : first.value);
  const output = {
    started: (pid: number): void => call.send(startedFrame(pid)),
    output: (stream: "stdout" | "stderr", bytes: Uint8Array, release: () => void): void =>
      call.send(outputFrame(stream, bytes), release),
    exit: (result: Parameters<typeof exitFrame>[0]): void => call.send(exitFrame(result)),
  };
  await exec.run(request, inputs(messages, request, call), output, call.signal);
}

async function* inputs(
  messages: AsyncIterator<Uint8Array>,
  request: ExecRequest,
  call: RawCall,
): AsyncGenerator<ExecInput> {
  const order = new ExecInputOrder(request);
  for (let next = await messages.next(); next.done !== true; next = await messages.next()) {
    const message = next.value;
    const input = decodeInput(message);
    order.check(input);
    yield input.kind === "stdin" ? { ...input, release: () => call.recycle(message) } : input;
  }
}
