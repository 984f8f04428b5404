import type { HealthResponse } from "../../gen/svc/guest/v1alpha1/health_pb.ts";
import type { RunHookResponse } from "../../gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { RestoreDutiesResponse } from "../../gen/svc/guest/v1alpha1/restore_pb.ts";

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
