import { RunHookResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import {
  type DutiesOptions,
  type DutiesResult,
  type HookResult,
  restoreDuties,
  type RestoreOutcome,
  restoreSequence as runSequence,
  type HookKind,
} from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  hookWords,
  LONG_MS,
  type Parsed,
  parseDurationMs,
  parseWaitMs,
  parseWord,
  printable,
  printableText,
  type ReportLine,
  reportText,
  STATUS_FAILED,
  STATUS_NOT_AS_INTENDED,
  STATUS_TIMED_OUT,
  unreadyReason,
  waitedFor,
  withDuration,
} from "../cli/index.ts";
import { CONNECTION_OPTIONS, connector, openClient } from "../connection/index.ts";
import { healthObject, schemaObject } from "./schema.ts";
import { RestoreDutiesResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";

const FREEZE = {
  argument: "DURATION",
  help: "freeze the session for a snapshot. The session thaws after the restore steps, or when DURATION has passed (pre-snapshot only; at most 10m)",
} as const;

const KINDS: Readonly<Record<string, HookKind>> = {
  "pre-snapshot": "pre-snapshot",
  "post-restore": "post-restore",
};

const HOOK_TIMEOUT = {
  argument: "DURATION",
  help: "time allowed for the hook, such as 500ms, 5s or 2m (default 30s, at most 10m)",
} as const;

export const hook: Command = defineCommand({
  usage: ["hook pre-snapshot|post-restore [options]"],
  about: `Runs a configured hook and waits until it has ended. Prints its output (the last 16 KiB of each stream).`,
  options: { timeout: HOOK_TIMEOUT, freeze: FREEZE, ...CONNECTION_OPTIONS },
  notes: `With --json, prints one object with "duration_ms" and the fields of the schema (RunHookResponse): "ran", "timed_out",
"exit_code", "stdout_tail", "stderr_tail", "oom_killed" and "usage". With --freeze, it also has "frozen",
"frozen_processes", "freeze_pending" and "freeze_problem".`,
  statuses: `the hook's own status; 0 if no hook is configured; 124 if it was killed at its time limit; 125 if guestctl
failed or --freeze could not freeze the session.`,
  examples: ["hook pre-snapshot --timeout 10s", "hook pre-snapshot --freeze 90s", "hook post-restore --json"],
  takes: { one: "pre-snapshot or post-restore" },
  completes: [Object.keys(KINDS), "nothing"],
  async run({ values, positionals }, host) {
    const [name = ""] = positionals;
    const kind = parseWord(name, KINDS, "the hook");
    const timeoutMs = parseDurationMs(values.timeout, "--timeout") ?? 0;
    const freezeMs = parseDurationMs(values.freeze, "--freeze") ?? 0;
    using client = await openClient(values, host);
    const { value: response, durationMs } = await waitedFor(`hook ${name}`, host, () =>
      client.snapshots.hook(kind, { timeoutMs, freezeMs }),
    );
    const { ran, timedOut, exitCode, stdoutTail, stderrTail } = response;
    if (values.json !== true) {
      host.stderr.write(printableText(stderrTail));
      if (!ran) host.stderr.write(`guestctl: no ${name} hook is configured\n`);
      if (timedOut) host.stderr.write(`guestctl: the ${name} hook was killed at its timeout\n`);
      host.stderr.write(freezeText(freezeMs, response));
      if (ran && host.stderr.isTTY && durationMs >= LONG_MS)
        host.stderr.write(`guestctl: the ${name} hook took ${(durationMs / 1_000).toFixed(1)} s\n`);
    }
    const json = { ...schemaObject(RunHookResponseSchema, response), duration_ms: durationMs };
    const text = printableText(stdoutTail);
    if (freezeMs > 0 && !response.frozen) return { text, json, status: STATUS_FAILED };
    return { text, json, status: timedOut ? STATUS_TIMED_OUT : exitCode };
  },
});

/** Describes the result of the option --freeze; empty if the option was not given. */
function freezeText(freezeMs: number, { frozen, frozenProcesses, freezePending, freezeProblem }: HookResult): string {
  if (freezeMs === 0) return "";
  if (!frozen)
    return `guestctl: nothing was frozen: ${printable(freezeProblem || "the agent is too old for --freeze")}\n`;
  const pending =
    freezePending === undefined
      ? ""
      : `, of which ${freezePending.count} have not stopped yet, because they wait in the kernel`;
  return `guestctl: processes frozen: ${frozenProcesses}${pending}; "guestctl restore" thaws them\n`;
}

/** Options that `restore` and `restore-sequence` share. */
const DUTIES_OPTIONS = {
  "no-time": { help: "do not set the guest's clock" },
  wait: { argument: "DURATION", help: "time limit for reaching the agent (default 10s)" },
} as const;

/** Parses the shared options. Throws UsageError. */
function dutiesOptions(values: Parsed<typeof DUTIES_OPTIONS>["values"]): DutiesOptions {
  return { hostTime: values["no-time"] !== true, reachTimeoutMs: parseWaitMs(values.wait, "--wait") };
}

export const restore: Command = defineCommand({
  usage: ["restore [options]"],
  about: `Makes the agent of a restored guest do its restore steps: reseed the random number generators with random bytes of this
host, set the clock to this host's time, reload the credentials, and close every other connection. "restore-sequence"
does everything that is needed after a restore.`,
  options: {
    timeout: {
      argument: "DURATION",
      help: "time limit of the restore steps, not counting the wait for the connection (default: none)",
    },
    ...DUTIES_OPTIONS,
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, prints one object with "duration_ms" and the fields of the schema (RestoreDutiesResponse):
"entropy_bytes_mixed", "entropy_credited", "clock_drift_ms" (text), "clock_stepped", "degraded", "frozen" and
"thawed_without_duties".`,
  statuses: `0 if every step was done; 1 if a step could not be done ("degraded", see docs/agent/snapshots.md), or the
session thawed before the steps; 125 if guestctl failed.`,
  examples: ["restore --timeout 10s", "restore --no-time --json"],
  async run({ values }, host) {
    const options = { ...dutiesOptions(values), dutiesTimeoutMs: parseDurationMs(values.timeout, "--timeout") };
    const { connect } = await connector(values, host);
    const timed = await waitedFor("restore", host, () => restoreDuties(connect, options));
    const { value: response, durationMs } = timed;
    return {
      text: withDuration(reportText(dutiesLines(response, options.hostTime !== false)), durationMs, host),
      json: { ...schemaObject(RestoreDutiesResponseSchema, response), duration_ms: durationMs },
      status: response.degraded === "" && !response.thawedWithoutDuties ? 0 : STATUS_NOT_AS_INTENDED,
    };
  },
});

export const restoreSequence: Command = defineCommand({
  usage: ["restore-sequence [options]"],
  about: `Does everything that a sandbox needs after a restore: runs the restore steps and reconnects, runs the POST_RESTORE
hook, and calls Health. If the restore steps set the guest's clock and it is still off by more than 50 ms, runs them
once more before the hook.`,
  options: { timeout: HOOK_TIMEOUT, ...DUTIES_OPTIONS, ...CONNECTION_OPTIONS },
  notes: `With --json, prints one object. "duties", "hook" and "health" have the fields that "guestctl restore",
"guestctl hook" and "guestctl health" print with --json, except "duration_ms" and "address_in_use".
"thawed_without_duties" is true if the session was frozen, but ran before the restore steps. "clock_error_ms" is the
guest's time minus the host's, after all steps. If the restore steps ran a second time, "repeated" has the "duties" of
the second time, and the "clock_error_ms" that made it necessary; otherwise "repeated" is null. "duration_ms" is the
duration of the whole sequence.`,
  statuses: `0 if everything succeeded; 1 if a restore step failed, the session ran before the restore steps, the clock
is off by more than 100 ms (without --no-time), the hook failed, or the workload is not ready; 125 if guestctl failed.`,
  examples: ["restore-sequence --timeout 10s", "restore-sequence --json | jq .duties.clock_drift_ms"],
  async run({ values }, host) {
    const options = dutiesOptions(values);
    const hookTimeoutMs = parseDurationMs(values.timeout, "--timeout");
    const { connect } = await connector(values, host);
    const { value: outcome, durationMs } = await waitedFor("restore-sequence", host, () =>
      runSequence(connect, { ...options, hookTimeoutMs }),
    );
    const { warnings, health } = outcome;
    for (const { message } of warnings) host.stderr.write(`guestctl: warning: ${printable(message)}\n`);
    return {
      text: withDuration(textOf(outcome, options.hostTime !== false), durationMs, host),
      json: { ...outcomeObject(outcome), duration_ms: durationMs },
      status: warnings.length === 0 && health.ready ? 0 : STATUS_NOT_AS_INTENDED,
    };
  },
});

function textOf({ duties, repeated, hook: ended, health, clockErrorMs }: RestoreOutcome, withTime: boolean): string {
  const lines: ReportLine[] = [
    ...dutiesLines(duties, withTime),
    ...(repeated === undefined
      ? []
      : [
          [
            "once more",
            `the clock was still off by ${repeated.clockErrorMs.toFixed(1)} ms (the guest's time minus the host's)`,
          ] as const,
        ]),
    ...(repeated === undefined ? [] : dutiesLines(repeated.duties, withTime)),
    ["POST_RESTORE", hookWords(ended)],
    ["ready", health.ready ? "yes" : `no (${unreadyReason(health)})`],
    [
      "clock now",
      Number.isNaN(clockErrorMs) ? "unknown" : `the guest's time minus the host's: ${clockErrorMs.toFixed(1)} ms`,
    ],
  ];
  return reportText(lines);
}

function outcomeObject(outcome: RestoreOutcome): object {
  const { duties, thawedWithoutDuties, repeated, hook: ended, health, clockErrorMs } = outcome;
  const dutiesObject = (response: DutiesResult): object => schemaObject(RestoreDutiesResponseSchema, response);
  return {
    duties: dutiesObject(duties),
    thawed_without_duties: thawedWithoutDuties,
    repeated: repeated ? { duties: dutiesObject(repeated.duties), clock_error_ms: repeated.clockErrorMs } : null,
    hook: schemaObject(RunHookResponseSchema, ended),
    health: healthObject(health),
    clock_error_ms: clockErrorMs,
  };
}

function dutiesLines(response: DutiesResult, withTime: boolean): ReportLine[] {
  const { entropyBytesMixed, entropyCredited, clockDriftMs, clockStepped, degraded } = response;
  const clock = clockStepped
    ? `stepped; it was ${drift(clockDriftMs)}`
    : `not stepped; the guest's clock is ${drift(clockDriftMs)}`;
  return [
    ["entropy", `${entropyBytesMixed} bytes mixed in, ${entropyCredited ? "credited" : "not credited"}`],
    ["clock", withTime ? clock : "left alone"],
    ["degraded", degraded === "" ? "no" : degraded.replaceAll(";", ", ")],
    ...(response.thawedWithoutDuties
      ? [["session", "was frozen, but thawed before these restore steps"] as const]
      : []),
  ];
}

function drift(ms: number): string {
  if (ms === 0) return "right";
  return ms < 0 ? `${-ms} ms behind` : `${ms} ms ahead`;
}
