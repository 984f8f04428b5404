import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { invalidField } from "../../domain/index.ts";
import {
  HookKind as WireHookKind,
  type RunHookRequest,
  type RunHookResponse,
  RunHookResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { HookKind, Hooks } from "../../hooks/index.ts";
import type { FreezeReport } from "../../session/index.ts";
import type { Call } from "../call.ts";
import { usageOf } from "./exec-frames.ts";

/** Largest number of processes that FreezePending lists. */
const PENDING_NAMED = 8;

/** Serves RunHook. If the client cancels the call, the hook's whole tree is ended. */
export async function serveRunHook(hooks: Hooks, request: RunHookRequest, call: Call): Promise<RunHookResponse> {
  const { timeoutMs, freezeMs } = request;
  const { freeze, usage, ...outcome } = await hooks.run(
    { kind: hookKind(request.kind), timeoutMs, freezeMs },
    call.signal,
  );
  const used = usage && { usage: usageOf(usage) };
  return create(RunHookResponseSchema, { ...outcome, ...used, ...(freeze !== undefined && freezeFields(freeze)) });
}

function freezeFields(report: FreezeReport): MessageInitShape<typeof RunHookResponseSchema> {
  const { frozen, processes, pending, problem } = report;
  return {
    frozen,
    frozenProcesses: processes,
    freezeProblem: problem ?? "",
    ...(pending !== undefined && {
      freezePending: { count: pending.length, processes: pending.slice(0, PENDING_NAMED) },
    }),
  };
}

function hookKind(kind: WireHookKind): HookKind {
  switch (kind) {
    case WireHookKind.PRE_SNAPSHOT:
      return "pre_snapshot";
    case WireHookKind.POST_RESTORE:
      return "post_restore";
    case WireHookKind.UNSPECIFIED:
      throw invalidField("kind", "is missing: must be PRE_SNAPSHOT or POST_RESTORE");
    default:
      throw invalidField("kind", `is ${String(kind)}, but must be PRE_SNAPSHOT or POST_RESTORE`);
  }
}
