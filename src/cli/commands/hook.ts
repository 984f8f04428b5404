import { HookKind, RunHookResponseSchema } from "../../gen/svc/guest/v1alpha1/hooks_pb.ts";
import { type Command, defineCommand } from "../command-line.ts";
import { CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { STATUS_TIMED_OUT } from "../errors.ts";
import { messageObject } from "../output.ts";
import { parseDurationMs, parseWord } from "../values.ts";
import { HOOK_TIMEOUT } from "./restore.ts";

const KINDS: Readonly<Record<string, HookKind>> = {
  "pre-snapshot": HookKind.PRE_SNAPSHOT,
  "post-restore": HookKind.POST_RESTORE,
};

export const hook: Command = defineCommand({
  usage: ["hook pre-snapshot|post-restore [options]"],
  about: `Runs a hook that the user configured and waits for its end. What it wrote (the last 16 KiB of each stream) comes out
here.`,
  options: { timeout: HOOK_TIMEOUT, ...CONNECTION_OPTIONS },
  notes: `With --json, the fields of the schema (RunHookResponse): "ran", "timed_out", "exit_code", "stdout_tail", "stderr_tail".`,
  statuses: `the hook's own, 0 when none is configured, 124 when it was killed at its timeout, 125 when guestctl fails.`,
  examples: ["hook pre-snapshot --timeout 10s", "hook post-restore --json"],
  takes: { one: "pre-snapshot or post-restore" },
  completes: [Object.keys(KINDS), "nothing"],
  async run({ values, positionals }, host) {
    const [name = ""] = positionals;
    const kind = parseWord(name, KINDS, "which hook");
    const timeoutMs = parseDurationMs(values.timeout, "--timeout") ?? 0;
    using client = await openClient(values, host);
    const response = await client.runHook({ kind, timeoutMs });
    const { ran, timedOut, exitCode, stdoutTail, stderrTail } = response;
    if (values.json !== true) {
      host.stderr.write(stderrTail);
      if (!ran) host.stderr.write(`guestctl: no ${name} hook is configured\n`);
      if (timedOut) host.stderr.write(`guestctl: the ${name} hook was killed at its timeout\n`);
    }
    const json = messageObject(RunHookResponseSchema, response);
    return { text: stdoutTail, json, status: timedOut ? STATUS_TIMED_OUT : exitCode };
  },
});
