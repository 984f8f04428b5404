import { HookKind, type RunHookResponse, RunHookResponseSchema } from "../../gen/svc/guest/v1alpha1/hooks_pb.ts";
import { type Command, defineCommand } from "../command-line.ts";
import { CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { STATUS_TIMED_OUT } from "../errors.ts";
import { jsonLine, messageObject } from "../output.ts";
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
    if (values.json === true) host.stdout.write(jsonLine(messageObject(RunHookResponseSchema, response)));
    else show(name, response, host);
    return response.timedOut ? STATUS_TIMED_OUT : response.exitCode;
  },
});

function show(name: string, response: RunHookResponse, host: NodeJS.Process): void {
  host.stdout.write(response.stdoutTail);
  host.stderr.write(response.stderrTail);
  if (!response.ran) host.stderr.write(`guestctl: no ${name} hook is configured\n`);
  if (response.timedOut) host.stderr.write(`guestctl: the ${name} hook was killed at its timeout\n`);
}
