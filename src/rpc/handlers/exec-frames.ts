import { create } from "@bufbuild/protobuf";
import type { ExecInput, ExecResult, OutputStream } from "../../exec/index.ts";
import { ExecFrameSchema } from "../../gen/svc/guest/v1alpha1/exec_pb.ts";
import { bytesFieldFrame, decodeMessage, type Frame, messageFrame, tryBytesField } from "../codec.ts";
import { frameOrder } from "../../domain/index.ts";

const STDIN_FIELD = ExecFrameSchema.field.stdin.number;
const OUTPUT_FIELDS: Readonly<Record<OutputStream, number>> = {
  stdout: ExecFrameSchema.field.stdout.number,
  stderr: ExecFrameSchema.field.stderr.number,
};

/** A frame after the first. Throws INVALID_ARGUMENT for one that a client may not send there. */
export function decodeInput(message: Uint8Array): ExecInput {
  const bytes = tryBytesField(message, STDIN_FIELD);
  if (bytes !== undefined) return { kind: "stdin", bytes };
  const { frame } = decodeMessage(ExecFrameSchema, message);
  switch (frame.case) {
    case "stdin":
      return { kind: "stdin", bytes: frame.value };
    case "stdinClose":
      return { kind: "stdin_close" };
    case "resize":
      return { kind: "resize", cols: frame.value.cols, rows: frame.value.rows };
    case "signal":
      return { kind: "signal", number: frame.value.number };
    case "start":
      throw frameOrder("second start frame; a call runs one command");
    case "attach":
    case "ack":
    case "forget":
      throw frameOrder(`${frame.case} frame; only a kept exec takes it`);
    case "started":
    case "stdout":
    case "stderr":
    case "gap":
    case "stdinAck":
    case "exit":
      throw frameOrder(`${frame.case} frame from the client; only the server sends it`);
    case undefined:
      throw frameOrder("frame without content, or of a kind that this agent does not know");
  }
}

/** The first frame of a response. */
export function startedFrame(pid: number): Frame {
  return messageFrame(ExecFrameSchema, create(ExecFrameSchema, { frame: { case: "started", value: { pid } } }));
}

/** A piece of output; the bytes are not copied unless there are few. */
export function outputFrame(stream: OutputStream, bytes: Uint8Array): Frame {
  return bytesFieldFrame(OUTPUT_FIELDS[stream], bytes);
}

/** The last frame of a response. */
export function exitFrame(result: ExecResult): Frame {
  const value = { ...result, durationMs: BigInt(result.durationMs) };
  return messageFrame(ExecFrameSchema, create(ExecFrameSchema, { frame: { case: "exit", value } }));
}
