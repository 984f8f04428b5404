import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Exec, KeptCommandState } from "../../exec/index.ts";
import {
  type EndExecRequest,
  type EndExecResponse,
  EndExecResponseSchema,
  type KeptExecSchema,
  type ListExecsResponse,
  ListExecsResponseSchema,
  type SignalExecRequest,
  type SignalExecResponse,
  SignalExecResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { timestamp } from "../codec.ts";
import { exitOf } from "./exec-frames.ts";

/** Serves ListExecs: the kept commands in the order of their starts. */
export function listExecs(exec: Exec): ListExecsResponse {
  return create(ListExecsResponseSchema, { execs: exec.list().map(keptCommandMessage) });
}

/**
 * Serves EndExec. If the client cancels the call while the command is being ended, the agent continues to end the
 * command.
 */
export async function endExec(exec: Exec, request: EndExecRequest, signal: AbortSignal): Promise<EndExecResponse> {
  const { result, ...ended } = await exec.end({ ...request, graceMs: Number(request.graceMs) }, signal);
  return create(EndExecResponseSchema, { exit: exitOf(result), ...ended });
}

/** Serves SignalExec. Throws AgentError for an unknown or ended command. */
export async function signalExec(
  exec: Exec,
  request: SignalExecRequest,
  signal: AbortSignal,
): Promise<SignalExecResponse> {
  await exec.signal(request, signal);
  return create(SignalExecResponseSchema);
}

function keptCommandMessage({
  startedNs,
  result,
  ends,
  stdinOffset,
  heldBytes,
  awakeLeftMs,
  ...rest
}: KeptCommandState): KeptExecInit {
  return {
    ...rest,
    started: timestamp(startedNs),
    ...(result !== undefined && { exit: exitOf(result) }),
    stdoutOffset: BigInt(ends.stdout),
    stderrOffset: BigInt(ends.stderr),
    stdinOffset: BigInt(stdinOffset),
    heldBytes: BigInt(heldBytes),
    awakeLeftMs: BigInt(awakeLeftMs),
  };
}

type KeptExecInit = MessageInitShape<typeof KeptExecSchema>;
