import type { DutiesOptions } from "../client/index.ts";
import type { HealthResponse } from "../gen/svc/guest/v1alpha1/health_pb.ts";
import type { RunHookResponse } from "../gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { RestoreDutiesResponse } from "../gen/svc/guest/v1alpha1/restore_pb.ts";
import { UsageError } from "./errors.ts";
import { parseCount, parseDurationMs } from "./values.ts";

/** Options of the commands that have the duties done. */
export const DUTIES_OPTIONS = {
  "entropy-bytes": {
    type: "string",
    argument: "N",
    help: "bytes of this host's generator to send (default 64, at most 65536)",
  },
  "no-time": { type: "boolean", help: "leave the guest's clock alone" },
  wait: { type: "string", argument: "DURATION", help: "how long to try to reach the agent (default 10s)" },
} as const;

/** Values of DUTIES_OPTIONS. */
export interface DutiesValues {
  readonly "entropy-bytes"?: string | undefined;
  readonly "no-time"?: boolean | undefined;
  readonly wait?: string | undefined;
}

const ENTROPY_LIMIT_BYTES = 65_536;

/** Reads them. Throws UsageError. */
export function dutiesOptions(values: DutiesValues): DutiesOptions {
  const bytes = values["entropy-bytes"];
  const entropyBytes = bytes === undefined ? undefined : parseCount(bytes, "--entropy-bytes", 1);
  if (entropyBytes !== undefined && entropyBytes > ENTROPY_LIMIT_BYTES) {
    throw new UsageError(`--entropy-bytes may be ${ENTROPY_LIMIT_BYTES} at most`);
  }
  const reachMs = values.wait === undefined ? undefined : parseDurationMs(values.wait, "--wait");
  return { entropyBytes, hostTime: values["no-time"] !== true, reachMs };
}

/** A name and what is to be said of it. */
export type ReportLine = readonly [name: string, text: string];

/** Lines for people, the names in a column. */
export function asText(lines: readonly ReportLine[]): string {
  return lines.map(([name, text]) => `${`${name}:`.padEnd(16)}${text}\n`).join("");
}

/** What the duties came to. */
export function dutiesLines(response: RestoreDutiesResponse, withTime: boolean): ReportLine[] {
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

/** How a hook ended. */
export function hookLine(name: string, { ran, timedOut, exitCode }: RunHookResponse): ReportLine {
  if (!ran) return [name, "not configured"];
  return [name, timedOut ? "killed at its timeout" : `exit ${exitCode}`];
}

/** Whether the workload is ready, by the agent's last verdict. */
export function readyLine({ ready, readyCmdExit }: HealthResponse): ReportLine {
  return ["ready", ready ? "yes" : `no (ready_cmd: ${readyCmdExit < 0 ? "no verdict yet" : `exit ${readyCmdExit}`})`];
}

/** Option for the time that a hook may take. */
export const HOOK_TIMEOUT = {
  type: "string",
  argument: "DURATION",
  help: "time allowed for the hook, such as 500ms, 5s or 2m (default 30s, at most 10m)",
} as const;
