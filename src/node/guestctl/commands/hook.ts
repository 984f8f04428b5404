import { HookKind, RunHookResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { HookResult } from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  parseDurationMs,
  parseWord,
  STATUS_FAILED,
  STATUS_TIMED_OUT,
} from "../cli/index.ts";
import { CONNECTION_OPTIONS, openClient } from "../target/index.ts";
import { schemaObject } from "./schema.ts";
import { HOOK_TIMEOUT } from "./restore.ts";

const FREEZE = {
  argument: "DURATION",
  help: "freeze the session for a snapshot, until the restore duties or for this long (pre-snapshot only, at most 10m)",
} as const;

const KINDS: Readonly<Record<string, HookKind>> = {
  "pre-snapshot": HookKind.PRE_SNAPSHOT,
  "post-restore": HookKind.POST_RESTORE,
};

export const hook: Command = defineCommand({
  usage: ["hook pre-snapshot|post-restore [options]"],
  about: `Runs a hook that the user configured and waits for its end. Prints its output (the last 16 KiB of each
stream).`,
  options: { timeout: HOOK_TIMEOUT, freeze: FREEZE, ...CONNECTION_OPTIONS },
  notes: `With --json, the fields of the schema (RunHookResponse): "ran", "timed_out", "exit_code", "stdout_tail", "stderr_tail",
and with --freeze "frozen", "frozen_processes", "freeze_pending", "freeze_problem".`,
  statuses: `the hook's own, 0 when none is configured, 124 when it was killed at its timeout,
125 when guestctl fails, also when --freeze froze nothing.`,
  examples: ["hook pre-snapshot --timeout 10s", "hook pre-snapshot --freeze 90s", "hook post-restore --json"],
  takes: { one: "pre-snapshot or post-restore" },
  completes: [Object.keys(KINDS), "nothing"],
  async run({ values, positionals }, host) {
    const [name = ""] = positionals;
    const kind = parseWord(name, KINDS, "which hook");
    const timeoutMs = parseDurationMs(values.timeout, "--timeout") ?? 0;
    const freezeMs = parseDurationMs(values.freeze, "--freeze") ?? 0;
    using client = await openClient(values, host);
    const response = await client.runHook({ kind, timeoutMs, freezeMs });
    const { ran, timedOut, exitCode, stdoutTail, stderrTail } = response;
    if (values.json !== true) {
      host.stderr.write(stderrTail);
      if (!ran) host.stderr.write(`guestctl: no ${name} hook is configured\n`);
      if (timedOut) host.stderr.write(`guestctl: the ${name} hook was killed at its timeout\n`);
      host.stderr.write(freezeText(freezeMs, response));
    }
    const json = schemaObject(RunHookResponseSchema, response);
    if (freezeMs > 0 && !response.frozen) return { text: stdoutTail, json, status: STATUS_FAILED };
    return { text: stdoutTail, json, status: timedOut ? STATUS_TIMED_OUT : exitCode };
  },
});

/** The result of --freeze; empty without it. */
function freezeText(freezeMs: number, { frozen, frozenProcesses, freezePending, freezeProblem }: HookResult): string {
  if (freezeMs === 0) return "";
  if (!frozen) return `guestctl: nothing is frozen: ${freezeProblem || "this agent does not know --freeze"}\n`;
  const pending = freezePending === undefined ? "" : `, of which ${freezePending.count} wait in the kernel`;
  return `guestctl: ${frozenProcesses} processes are frozen${pending}; "guestctl restore" thaws them\n`;
}
