import { type DescMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { restoreSequence as restore, type RestoreOutcome } from "../../client/index.ts";
import { HealthResponseSchema } from "../../gen/svc/guest/v1alpha1/health_pb.ts";
import { RunHookResponseSchema } from "../../gen/svc/guest/v1alpha1/hooks_pb.ts";
import { RestoreDutiesResponseSchema } from "../../gen/svc/guest/v1alpha1/restore_pb.ts";
import { type Command, defineCommand } from "../command-line.ts";
import { CONNECTION_OPTIONS, connector } from "../connection.ts";
import { STATUS_NOT_AS_INTENDED, UsageError } from "../errors.ts";
import { asText, DUTIES_OPTIONS, dutiesLines, dutiesOptions, HOOK_TIMEOUT, hookLine, readyLine } from "../restore.ts";
import { parseDurationMs } from "../values.ts";

/** A clock that is further off than this at the end is told of: schedules, leases and logs of the guest would be wrong. */
const WARN_OVER_MS = 100;

export const restoreSequence: Command = defineCommand({
  usage: ["restore-sequence [options]"],
  about:
    "Does what a node agent does after a restore, in order: duties, a new connection, the POST_RESTORE hook, Health.\n" +
    "Where the guest's clock is then more than 50 ms off, the duties are done once more.",
  options: { timeout: HOOK_TIMEOUT, ...DUTIES_OPTIONS, ...CONNECTION_OPTIONS },
  notes: `With --json, one object: "duties" (as of "restore"), "repeated" (null, or "duties" once more, and "clock_error_ms"
before them), "hook" (as of "hook"), "health" (as of "health") and "clock_error_ms" (guest minus host, once all is
done).`,
  statuses: `0 all as intended; 1 a duty could not be done, the clock is more than 100 ms off, the hook failed, or the
workload is not ready; 125 guestctl failed.`,
  examples: ["restore-sequence --timeout 10s", "restore-sequence --json | jq .duties.clock_drift_ms"],
  completes: ["nothing"],
  async run({ values, positionals }, host) {
    if (positionals.length > 0) throw new UsageError("restore-sequence takes no arguments");
    const options = dutiesOptions(values);
    const hookTimeoutMs = values.timeout === undefined ? undefined : parseDurationMs(values.timeout, "--timeout");
    const outcome = await restore((await connector(values, host)).connect, { ...options, hookTimeoutMs });
    host.stdout.write(values.json === true ? asJson(outcome) : textOf(outcome, options.hostTime !== false));
    const { clockErrorMs } = outcome;
    const clockIsOff = options.hostTime !== false && Math.abs(clockErrorMs) > WARN_OVER_MS;
    if (clockIsOff) {
      host.stderr.write(
        `guestctl: warning: the guest's clock is ${offText(clockErrorMs)} against this host's after the duties; ` +
          `look at "degraded", at the load of both, and at what else sets the guest's clock\n`,
      );
    }
    return wentAsIntended(outcome) && !clockIsOff ? 0 : STATUS_NOT_AS_INTENDED;
  },
});

function wentAsIntended({ duties, repeated, hook, health }: RestoreOutcome): boolean {
  const degraded = duties.degraded + (repeated?.duties.degraded ?? "");
  return degraded === "" && !hook.timedOut && hook.exitCode === 0 && health.ready;
}

function offText(clockErrorMs: number): string {
  return `${Math.abs(clockErrorMs).toFixed(1)} ms ${clockErrorMs < 0 ? "behind" : "ahead"}`;
}

function textOf({ duties, repeated, hook, health, clockErrorMs }: RestoreOutcome, withTime: boolean): string {
  return asText([
    ...dutiesLines(duties, withTime),
    ...(repeated === undefined
      ? []
      : ([
          ["once more", `the clock was still ${offText(repeated.clockErrorMs)}`],
          ...dutiesLines(repeated.duties, withTime),
        ] as const)),
    hookLine("POST_RESTORE", hook),
    readyLine(health),
    ["clock now", Number.isNaN(clockErrorMs) ? "unknown" : `guest minus host: ${clockErrorMs.toFixed(1)} ms`],
  ]);
}

function asJson({ duties, repeated, hook, health, clockErrorMs }: RestoreOutcome): string {
  const plain = <Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>) =>
    toJson(schema, message, { alwaysEmitImplicit: true, useProtoFieldName: true });
  const json = {
    duties: plain(RestoreDutiesResponseSchema, duties),
    repeated:
      repeated === undefined
        ? null
        : {
            duties: plain(RestoreDutiesResponseSchema, repeated.duties),
            clock_error_ms: repeated.clockErrorMs,
          },
    hook: plain(RunHookResponseSchema, hook),
    health: plain(HealthResponseSchema, health),
    clock_error_ms: clockErrorMs,
  };
  return `${JSON.stringify(json)}\n`;
}
