import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ExecInput, ExecResult, KeptStarted, OutputStream } from "../../exec/index.ts";
import {
  type CommandUsage as WireUsage,
  CommandUsageSchema,
  type ExecExit,
  ExecExitSchema,
  ExecFrameSchema,
  ExecStream,
  UsageScope,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { bytesFieldFrame, decodeMessage, type Frame, messageFrame, tryBytesField } from "../codec.ts";
import { type CommandUsage, frameOrder, type BorrowedBytes } from "../../domain/index.ts";

const OUTPUT_FIELDS: Readonly<Record<OutputStream, number>> = {
  stdout: ExecFrameSchema.field.stdout.number,
  stderr: ExecFrameSchema.field.stderr.number,
};

/**
 * Decodes a frame after the first one. If the frame is input, the receiver must release the message. Throws
 * INVALID_ARGUMENT for a frame that clients must not send.
 */
export function decodeInput(message: BorrowedBytes): ExecInput {
  const release = (): void => message.release();
  const bytes = tryBytesField(message.bytes, ExecFrameSchema.field.stdin.number);
  if (bytes !== undefined) return { kind: "stdin", bytes, release };
  const { frame } = decodeMessage(ExecFrameSchema, message.bytes);
  switch (frame.case) {
    case "stdin":
      return { kind: "stdin", bytes: frame.value, release };
    case "stdinClose":
      return { kind: "stdin_close" };
    case "resize":
      return { kind: "resize", cols: frame.value.cols, rows: frame.value.rows };
    case "signal":
      return { kind: "signal", number: frame.value.number };
    case "start":
      throw frameOrder('second "start" frame; a call runs one command');
    case "attach":
      throw frameOrder('"attach" frame after the first frame; only the first frame of a call may attach');
    case "ack":
      return { kind: "ack", stdoutOffset: frame.value.stdoutOffset, stderrOffset: frame.value.stderrOffset };
    case "forget":
      return { kind: "forget" };
    case "started":
    case "stdout":
    case "stderr":
    case "gap":
    case "stdinAck":
    case "exit":
      throw frameOrder(`${frame.case} frame from the client; only the server sends it`);
    case undefined:
      throw frameOrder("empty frame, or a frame that this agent does not know");
  }
}

/** Encodes the first frame of a response to Exec. */
export function startedFrame(pid: number): Frame {
  return frameOf({ case: "started", value: { pid } });
}

/** Encodes the first frame of a response to Exec if the command is kept. */
export function keptStartedFrame({ pid, execId, offsets, ends, stdinOffset, ...rest }: KeptStarted): Frame {
  const value = {
    pid,
    kept: true,
    execId,
    stdoutOffset: BigInt(offsets.stdout),
    stderrOffset: BigInt(offsets.stderr),
    stdoutEnd: BigInt(ends.stdout),
    stderrEnd: BigInt(ends.stderr),
    stdinOffset: BigInt(stdinOffset),
    ...rest,
  };
  return frameOf({ case: "started", value });
}

/** Encodes a chunk of output. Copies the bytes only if there are few. */
export function outputFrame(stream: OutputStream, bytes: Uint8Array): Frame {
  return bytesFieldFrame(OUTPUT_FIELDS[stream], bytes);
}

/** Reports output that was dropped from the buffer. */
export function gapFrame(stream: OutputStream, bytes: number): Frame {
  const value = { stream: stream === "stdout" ? ExecStream.STDOUT : ExecStream.STDERR, bytes: BigInt(bytes) };
  return frameOf({ case: "gap", value });
}

/** Acknowledges input up to this offset. */
export function stdinAckFrame(offset: number): Frame {
  const value = { offset: BigInt(offset) };
  return frameOf({ case: "stdinAck", value });
}

/** Converts the result of a command to the message ExecExit. */
export function exitOf({ usage, durationMs, ...rest }: ExecResult): ExecExit {
  const used = usage && { usage: usageOf(usage) };
  return create(ExecExitSchema, { ...rest, durationMs: BigInt(durationMs), ...used });
}

const SCOPE = { tree: UsageScope.TREE, process: UsageScope.PROCESS } as const;

/** Encodes the resource usage of a command. The peak memory is absent if the agent could not measure it. */
export function usageOf({ cpuScope, cpuUserUs, cpuSystemUs, peakMemory }: CommandUsage): WireUsage {
  return create(CommandUsageSchema, {
    cpuScope: SCOPE[cpuScope],
    cpuUserUs: BigInt(cpuUserUs),
    cpuSystemUs: BigInt(cpuSystemUs),
    ...(peakMemory && { peakMemoryScope: SCOPE[peakMemory.scope], peakMemoryBytes: BigInt(peakMemory.bytes) }),
  });
}

/** Encodes the last frame of a response to Exec. */
export function exitFrame(result: ExecResult): Frame {
  return frameOf({ case: "exit", value: exitOf(result) });
}

type FrameInit = NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>;

function frameOf(frame: FrameInit): Frame {
  return messageFrame(ExecFrameSchema, create(ExecFrameSchema, { frame }));
}
