import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { CommandProcess, ListedProcess, ProcessList } from "../../processes/index.ts";
import {
  CommandKind,
  type ListProcessesResponse,
  ListProcessesResponseSchema,
  type ProcessCommandSchema,
  type SessionProcessSchema,
  type SignalProcessRequest,
  type SignalProcessResponse,
  SignalProcessResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { timestamp } from "../codec.ts";

/** Serves ListProcesses. Throws FAILED_PRECONDITION without a usable /proc. */
export async function listProcesses(list: ProcessList): Promise<ListProcessesResponse> {
  const { processes, truncated, uptimeUs } = await list.list();
  return create(ListProcessesResponseSchema, {
    processes: processes.map(sessionProcess),
    truncated,
    uptimeUs: BigInt(uptimeUs),
  });
}

/** Serves SignalProcess. Throws AgentError if there is no such process, or if it may not be signalled. */
export function signalProcess(list: ProcessList, request: SignalProcessRequest): SignalProcessResponse {
  list.signal(request.pid, Number(request.startTicks), request.signal);
  return create(SignalProcessResponseSchema);
}

type ProcessInit = MessageInitShape<typeof SessionProcessSchema>;

function sessionProcess(process: ListedProcess): ProcessInit {
  const { startTicks, parent, user = "", cpuUs, rssBytes, startedNs, commandLine, command, ...rest } = process;
  const { pid, uid, state, name } = rest;
  return {
    pid,
    uid,
    state,
    name,
    user,
    startTicks: BigInt(startTicks),
    parentPid: parent,
    cpuUs: BigInt(cpuUs),
    rssBytes: BigInt(rssBytes),
    started: timestamp(startedNs),
    commandLine: commandLine.bytes,
    commandLineTruncated: commandLine.truncated,
    ...(command && { command: commandInit(command) }),
  };
}

const KIND = { workload: CommandKind.WORKLOAD, kept: CommandKind.KEPT, attached: CommandKind.ATTACHED } as const;

function commandInit({
  kind,
  pid = 0,
  name = "",
  execId = "",
  client = "",
}: CommandProcess): MessageInitShape<typeof ProcessCommandSchema> {
  return { kind: KIND[kind], pid, name, execId, client };
}
