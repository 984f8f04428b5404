import { create } from "@bufbuild/protobuf";
import { invalidField } from "../../domain/index.ts";
import {
  HookKind as WireHookKind,
  type RunHookRequest,
  type RunHookResponse,
  RunHookResponseSchema,
} from "../../gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { HookKind, Hooks } from "../../hooks/index.ts";
import type { Call } from "../call.ts";

/** Serves one RunHook call. */
export async function serveRunHook(hooks: Hooks, request: RunHookRequest, call: Call): Promise<RunHookResponse> {
  return create(RunHookResponseSchema, {
    ...(await hooks.run(hookKind(request.kind), request.timeoutMs, call.signal)),
  });
}

function hookKind(kind: WireHookKind): HookKind {
  switch (kind) {
    case WireHookKind.PRE_SNAPSHOT:
      return "pre_snapshot";
    case WireHookKind.POST_RESTORE:
      return "post_restore";
    case WireHookKind.UNSPECIFIED:
      throw invalidField("kind", "is missing: give PRE_SNAPSHOT or POST_RESTORE");
    default:
      throw invalidField(
        "kind",
        `is ${String(kind)}, which this agent does not know: give PRE_SNAPSHOT or POST_RESTORE`,
      );
  }
}
