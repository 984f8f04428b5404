import { create } from "@bufbuild/protobuf";
import {
  type EndExecResponse,
  EndExecResponseSchema,
  type KeptExec as KeptExecMessage,
  KeptExecSchema,
  type ListProcessesResponse,
  type SessionProcess as ProcessMessage,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import type { HealthResponse } from "../../../shared/gen/svc/guest/v1alpha1/health_pb.ts";
import type { RunHookResponse } from "../../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { StopResponse } from "../../../shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";
import type { RestoreDutiesRequest, RestoreDutiesResponse } from "../../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import type { CommandUsage as UsageMessage } from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import type {
  ListeningPort as PortMessage,
  ListPortsResponse,
  WaitForPortResponse,
  WatchPortsResponse,
} from "../../../shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import {
  type GetUsageResponse,
  type GuestUsage as GuestUsageMessage,
  GuestUsageSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { type CommandResult, resultOf } from "../commands/command.ts";
import { plain, type Plain } from "../plain.ts";

/** State of an agent (message HealthResponse). Its times are from the guest's clock. */
export type Health = Plain<HealthResponse>;

/** How a hook ended (message RunHookResponse). */
export type HookResult = Plain<RunHookResponse>;

/** Input of the restore steps (message RestoreDutiesRequest). */
export type DutiesRequest = Partial<Pick<Plain<RestoreDutiesRequest>, "hostTime" | "keepFrozen">> &
  Pick<RestoreDutiesRequest, "entropy">;

/** Result of the restore steps (message RestoreDutiesResponse). */
export type DutiesResult = Plain<RestoreDutiesResponse>;

/**
 * The agent's answer to a stop request (message StopResponse). The agent sends it when the stop has begun, not when the
 * stop has ended.
 */
export type StopResult = Plain<StopResponse>;

/**
 * A process of the session (message SessionProcess). `cpuUs` is in microseconds, and `rssBytes` is its resident memory.
 * `command.kind` is a name, such as "kept". The process chooses its `name` and `commandLine`: escape them before
 * printing.
 */
export type SessionProcess = Plain<ProcessMessage>;

/**
 * The processes of the session (message ListProcessesResponse). To calculate how much CPU time a process has used
 * between two lists, in per cent of one processor, use the counters of both lists: `100 * (later.cpuUs - earlier.cpuUs)
 * / (laterList.uptimeUs - earlierList.uptimeUs)`, for processes with the same `pid` and `startTicks`.
 */
export type ProcessList = Plain<ListProcessesResponse>;

/**
 * Resource use of a guest (message GuestUsage). Values that the guest cannot determine are absent. Names of times end
 * in `Us` (microseconds), and names of sizes in `Bytes`.
 *
 * Times and the traffic of the network are counters since the guest's boot, and there are no percentages. The CPU use
 * between two reports, in per cent of all processors, is `100 * (later.cpu.busyUs - earlier.cpu.busyUs) /
 * (later.uptimeUs - earlier.uptimeUs) / later.cpu.count`. Both reports must have the same `generation`: if it differs,
 * the guest was restored between them.
 */
export type GuestUsage = Plain<GuestUsageMessage>;

/**
 * A TCP port on which a process listens (message ListeningPort). The process chooses its name in `command`: escape it
 * before printing.
 */
export type ListeningPort = Plain<PortMessage>;

/** The TCP ports on which processes listen (message ListPortsResponse). */
export type PortList = Plain<ListPortsResponse>;

/**
 * Ports on which processes have begun or ceased to listen. The first message contains all ports on which processes
 * listen (message WatchPortsResponse).
 */
export type PortChanges = Plain<WatchPortsResponse>;

/** Result of waiting for a port: from where the port can be reached (message WaitForPortResponse). */
export type PortWait = Plain<WaitForPortResponse>;

/**
 * Resources that a command has used (message CommandUsage): CPU times in microseconds, and the peak memory in bytes,
 * which is absent if it is not known. `cpuScope` and `peakMemoryScope` say whether these figures include the processes
 * that the command started. The average CPU use of a command, in per cent of one processor, is `(cpuUserUs +
 * cpuSystemUs) / (10 * durationMs)` with the `durationMs` of the command's result.
 */
export type CommandUsage = Plain<UsageMessage>;

/** A kept command (message KeptExec). Without `exit` it is still running. */
export type CommandInfo = Omit<Plain<KeptExecMessage>, "exit"> & { readonly exit?: CommandResult };

/** How a kept command ended, and whether the agent has forgotten the command (message EndExecResponse). */
export type EndedCommand = Omit<Plain<EndExecResponse>, "exit"> & { readonly exit?: CommandResult };

export function commandInfoOf(message: KeptExecMessage): CommandInfo {
  const { exit: _, ...fields } = plain(KeptExecSchema, message);
  return { ...fields, ...(message.exit && { exit: resultOf(message.exit) }) };
}

export function endedCommandOf(message: EndExecResponse): EndedCommand {
  const { exit: _, ...fields } = plain(EndExecResponseSchema, message);
  return { ...fields, ...(message.exit && { exit: resultOf(message.exit) }) };
}

/** Converts the report in an answer of UsageService to a plain object. */
export function guestUsageOf({ usage }: Pick<GetUsageResponse, "usage">): GuestUsage {
  return plain(GuestUsageSchema, create(GuestUsageSchema, usage));
}
