import { create } from "@bufbuild/protobuf";
import {
  type EndExecResponse,
  EndExecResponseSchema,
  type KeptExec as KeptExecMessage,
  KeptExecSchema,
} from "../../shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import type { HealthResponse } from "../../shared/gen/svc/guest/v1alpha1/health_pb.ts";
import type { RunHookRequest, RunHookResponse } from "../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { StopResponse } from "../../shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";
import type { RestoreDutiesRequest, RestoreDutiesResponse } from "../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import type { CommandUsage as UsageMessage } from "../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import type {
  ListeningPort as PortMessage,
  ListPortsResponse,
  WaitForPortResponse,
  WatchPortsResponse,
} from "../../shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import {
  type GetUsageResponse,
  type GuestUsage as GuestUsageMessage,
  GuestUsageSchema,
} from "../../shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { type ExecResult, resultOf } from "./exec/command.ts";
import { plain, type Plain } from "./plain.ts";

/** State of an agent (message HealthResponse). Its times are by the guest's clock. */
export type Health = Plain<HealthResponse>;

/** A hook to run (message RunHookRequest); `timeoutMs` is the hook's own. */
export type HookRequest = Partial<Plain<RunHookRequest>> & Pick<RunHookRequest, "kind">;

/** How a hook ended (message RunHookResponse). */
export type HookResult = Plain<RunHookResponse>;

/** What restore duties are to do (message RestoreDutiesRequest). */
export type DutiesRequest = Partial<Pick<Plain<RestoreDutiesRequest>, "hostTime" | "keepFrozen">> &
  Pick<RestoreDutiesRequest, "entropy">;

/** What restore duties have done (message RestoreDutiesResponse). */
export type DutiesResult = Plain<RestoreDutiesResponse>;

/** What a stop has begun (message StopResponse). */
export type StopResult = Plain<StopResponse>;

/** What a guest uses (message GuestUsage): what it cannot tell is absent. */
export type GuestUsage = Plain<GuestUsageMessage>;

/** A TCP port that listens (message ListeningPort). Its process chooses the name in `command`: escape it. */
export type ListeningPort = Plain<PortMessage>;

/** The ports that listen (message ListPortsResponse). */
export type PortList = Plain<ListPortsResponse>;

/** What has changed, or all that listen (message WatchPortsResponse). */
export type PortChanges = Plain<WatchPortsResponse>;

/** Who reaches a port that was waited for (message WaitForPortResponse). */
export type PortWait = Plain<WaitForPortResponse>;

/** What a command has used (message CommandUsage). */
export type CommandUsage = Plain<UsageMessage>;

/** A kept command (message KeptExec); without `exit` it runs. */
export type KeptExec = Omit<Plain<KeptExecMessage>, "exit"> & { readonly exit?: ExecResult };

/** How an ended command ended, and whether it is forgotten (message EndExecResponse). */
export type EndedExec = Omit<Plain<EndExecResponse>, "exit"> & { readonly exit?: ExecResult };

/** The message as a plain object. */
export function keptExecOf(message: KeptExecMessage): KeptExec {
  const { exit: _, ...fields } = plain(KeptExecSchema, message);
  return { ...fields, ...(message.exit && { exit: resultOf(message.exit) }) };
}

/** The message as a plain object. */
export function endedExecOf(message: EndExecResponse): EndedExec {
  const { exit: _, ...fields } = plain(EndExecResponseSchema, message);
  return { ...fields, ...(message.exit && { exit: resultOf(message.exit) }) };
}

/** The report in an answer of UsageService, as a plain object. */
export function guestUsageOf({ usage }: Pick<GetUsageResponse, "usage">): GuestUsage {
  return plain(GuestUsageSchema, create(GuestUsageSchema, usage));
}
