import {
  type DutiesOptions,
  restoreDuties,
  type RestoreOutcome,
  restoreSequence as runSequence,
} from "../../client/index.ts";
import { RunHookResponseSchema } from "../../../shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import {
  type RestoreDutiesResponse,
  RestoreDutiesResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import { type Command, defineCommand, type Parsed } from "../command-line.ts";
import { CONNECTION_OPTIONS, connector } from "../connection.ts";
import { STATUS_NOT_AS_INTENDED, UsageError } from "../errors.ts";
import { healthObject, hookWords, messageObject, type ReportLine, reportText, unreadyReason } from "../output.ts";
import { parseCount, parseDurationMs, parseWaitMs } from "../values.ts";

/** Option for a hook's timeout. */
export const HOOK_TIMEOUT = {
  type: "string",
  argument: "DURATION",
  help: "time allowed for the hook, such as 500ms, 5s or 2m (default 30s, at most 10m)",
} as const;

/** Options of both commands. */
const DUTIES_OPTIONS = {
  "entropy-bytes": {
    type: "string",
    argument: "N",
    help: "bytes of this host's generator to send (default 64, at most 65536)",
  },
  "no-time": { type: "boolean", help: "leave the guest's clock alone" },
  wait: { type: "string", argument: "DURATION", help: "how long to try to reach the agent (default 10s)" },
} as const;

const ENTROPY_LIMIT_BYTES = 65_536;

/** Reads the options of both commands. Throws UsageError. */
function dutiesOptions(values: Parsed<typeof DUTIES_OPTIONS>["values"]): DutiesOptions {
  const bytes = values["entropy-bytes"];
  const entropyBytes = parseCount(bytes, "--entropy-bytes", 1);
  if (entropyBytes !== undefined && entropyBytes > ENTROPY_LIMIT_BYTES) {
    throw new UsageError(`--entropy-bytes may be ${ENTROPY_LIMIT_BYTES} at most`);
  }
  return { entropyBytes, hostTime: values["no-time"] !== true, reachMs: parseWaitMs(values.wait, "--wait") };
}

export const restore: Command = defineCommand({
  usage: ["restore [options]"],
  about: `Makes a restored guest do its duties: fresh randomness from this host's generator, its clock stepped to this host's
time, credentials read again, every other connection closed. "restore-sequence" does all that a restore needs.`,
  options: {
    timeout: {
      type: "string",
      argument: "DURATION",
      help: "time for the duties once the agent is reached (default: no limit)",
    },
    ...DUTIES_OPTIONS,
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, the fields of the schema (RestoreDutiesResponse): "entropy_bytes_mixed", "entropy_credited",
"clock_drift_ms" (text), "clock_stepped", "degraded".`,
  statuses: '0 every duty done, 1 some could not be (see "degraded" in docs/agent/operations.md), 125 guestctl failed.',
  examples: ["restore --timeout 10s", "restore --no-time --json"],
  async run({ values }, host) {
    const options = { ...dutiesOptions(values), deadlineMs: parseDurationMs(values.timeout, "--timeout") };
    const response = await restoreDuties((await connector(values, host)).connect, options);
    return {
      text: reportText(dutiesLines(response, options.hostTime !== false), NAME_WIDTH),
      json: messageObject(RestoreDutiesResponseSchema, response),
      status: response.degraded === "" ? 0 : STATUS_NOT_AS_INTENDED,
    };
  },
});

/** A larger clock error at the end gives a warning: schedules, leases and logs of the guest would be wrong. */
const WARN_OVER_MS = 100;

export const restoreSequence: Command = defineCommand({
  usage: ["restore-sequence [options]"],
  about:
    "Does what a node agent does after a restore, in order: duties, a new connection, the POST_RESTORE hook, Health.\n" +
    "If the guest's clock is then more than 50 ms off, the duties are repeated.",
  options: { timeout: HOOK_TIMEOUT, ...DUTIES_OPTIONS, ...CONNECTION_OPTIONS },
  notes: `With --json, one object: "duties" (as of "restore"), "thawed_without_duties" (whether the session had been
frozen and ran before them), "repeated" (null, or "duties" once more, and "clock_error_ms" before them), "hook" (as of
"hook"), "health" (as of "health") and "clock_error_ms" (guest minus host, once all is done).`,
  statuses: `0 all as intended; 1 a duty could not be done, the session had thawed before, the clock is more than 100 ms
off, the hook failed, or the workload is not ready; 125 guestctl failed.`,
  examples: ["restore-sequence --timeout 10s", "restore-sequence --json | jq .duties.clock_drift_ms"],
  async run({ values }, host) {
    const options = dutiesOptions(values);
    const hookTimeoutMs = parseDurationMs(values.timeout, "--timeout");
    const outcome = await runSequence((await connector(values, host)).connect, { ...options, hookTimeoutMs });
    const { clockErrorMs, thawedWithoutDuties } = outcome;
    if (thawedWithoutDuties) {
      host.stderr.write(
        "guestctl: warning: the session had thawed before these duties: it ran with old randomness and time, and clones of it may " +
          "have drawn the same; freeze it for longer, or run the duties sooner\n",
      );
    }
    const clockIsOff = options.hostTime !== false && Math.abs(clockErrorMs) > WARN_OVER_MS;
    if (clockIsOff) {
      host.stderr.write(
        `guestctl: warning: the guest's clock is ${offText(clockErrorMs)} against this host's after the duties; ` +
          `look at "degraded", at the load of both, and at what else sets the guest's clock\n`,
      );
    }
    return {
      text: textOf(outcome, options.hostTime !== false),
      json: outcomeObject(outcome),
      status: wentAsIntended(outcome) && !clockIsOff ? 0 : STATUS_NOT_AS_INTENDED,
    };
  },
});

function wentAsIntended({ duties, thawedWithoutDuties, repeated, hook, health }: RestoreOutcome): boolean {
  const degraded = duties.degraded + (repeated?.duties.degraded ?? "");
  return degraded === "" && !thawedWithoutDuties && !hook.timedOut && hook.exitCode === 0 && health.ready;
}

function offText(clockErrorMs: number): string {
  return `${Math.abs(clockErrorMs).toFixed(1)} ms ${clockErrorMs < 0 ? "behind" : "ahead"}`;
}

function textOf({ duties, repeated, hook, health, clockErrorMs }: RestoreOutcome, withTime: boolean): string {
  const lines: ReportLine[] = [
    ...dutiesLines(duties, withTime),
    ...(repeated === undefined
      ? []
      : [["once more", `the clock was still ${offText(repeated.clockErrorMs)}`] as const]),
    ...(repeated === undefined ? [] : dutiesLines(repeated.duties, withTime)),
    ["POST_RESTORE", hookWords(hook)],
    ["ready", health.ready ? "yes" : `no (${unreadyReason(health)})`],
    ["clock now", Number.isNaN(clockErrorMs) ? "unknown" : `guest minus host: ${clockErrorMs.toFixed(1)} ms`],
  ];
  return reportText(lines, NAME_WIDTH);
}

function outcomeObject(outcome: RestoreOutcome): object {
  const { duties, thawedWithoutDuties, repeated, hook, health, clockErrorMs } = outcome;
  const dutiesObject = (response: RestoreDutiesResponse): object =>
    messageObject(RestoreDutiesResponseSchema, response);
  return {
    duties: dutiesObject(duties),
    thawed_without_duties: thawedWithoutDuties,
    repeated: repeated ? { duties: dutiesObject(repeated.duties), clock_error_ms: repeated.clockErrorMs } : null,
    hook: messageObject(RunHookResponseSchema, hook),
    health: healthObject(health),
    clock_error_ms: clockErrorMs,
  };
}

const NAME_WIDTH = 16;

/** The result of the duties, for people. */
function dutiesLines(response: RestoreDutiesResponse, withTime: boolean): ReportLine[] {
  const { entropyBytesMixed, entropyCredited, clockDriftMs, clockStepped, degraded } = response;
  const clock = clockStepped ? `stepped; it was ${drift(clockDriftMs)}` : `not stepped; it is ${drift(clockDriftMs)}`;
  return [
    ["entropy", `${entropyBytesMixed} bytes mixed in, ${entropyCredited ? "credited" : "not credited"}`],
    ["clock", withTime ? clock : "left alone"],
    ["degraded", degraded === "" ? "no" : degraded.replaceAll(";", ", ")],
  ];
}

function drift(ms: bigint): string {
  if (ms === 0n) return "right";
  return ms < 0n ? `${-ms} ms behind` : `${ms} ms ahead`;
}
