import type { Health } from "../../client/index.ts";
import {
  type Command,
  defineCommand,
  parseCount,
  parseWaitMs,
  type ReportLine,
  reportText,
  STATUS_FAILED,
  STATUS_NOT_AS_INTENDED,
  unreadyReason,
  UsageError,
} from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, connector, openClient } from "../connection/index.ts";
import { healthObject } from "./schema.ts";
import { type Sample, watchHealth } from "./health-watch.ts";
import { AGENT_VERSION } from "../../../shared/version.ts";

const DEFAULT_INTERVAL_MS = 1_000;
/**
 * Minimum interval of the checks. A Health call is cheap, but faster polling would take CPU time from the guest's
 * workload.
 */
const LEAST_INTERVAL_MS = 100;

export const health: Command = defineCommand({
  usage: ["health [options]", "health --watch [--interval DURATION] [--count N] [options]"],
  about: `Shows whether an agent is alive and its workload ready, the last user activity, the guest's time and the workload's idle
declaration. With --watch it checks repeatedly until SIGINT or SIGTERM, and prints a line for each change: the
connection was lost or made again, the workload became ready or unready or declared that it is idle, the session was
frozen or thawed, the version of the agent changed, or the guest's clock was set. After a lost connection, --watch
reconnects with the current address and credentials. Does not count as user activity.`,
  options: {
    watch: { short: "w", help: "keep watching, and print each change" },
    interval: { argument: "DURATION", help: "with --watch: time between two checks (default 1s, at least 100ms)" },
    count: { argument: "N", help: "with --watch: exit after this many checks" },
    ...CONNECTION_OPTIONS,
  },
  notes: `With --json, prints one object with the fields of HealthResponse in the schema: "alive", "ready", "ready_cmd_exit",
"last_user_activity", "guest_time", "frozen", "thawed_without_duties", "process_env_version", "services", and
"idle_declared" once the workload has declared itself idle. If you gave several addresses or a vsock address,
"address_in_use" is the address that guestctl has connected to.
With --json and --watch, prints one line with an object for each check. It has "time" and "state". If "state" is "up",
the object also has "round_trip_ms", "clock_error_ms" (the guest's time minus the host's), "agent_version",
"address_in_use" and "health"; if "state" is "lost", it has "error".`,
  statuses: `0 if the workload is ready, 1 if it is not ready, 125 if the agent did not answer. With --watch, the last
check determines the status.`,
  examples: [
    "health --address 127.0.0.1:7071 --credentials ./creds",
    "health --sandbox box",
    "health --json | jq .ready",
    "health --watch --interval 200ms --json | jq --unbuffered .health.ready",
  ],
  async run({ values }, host) {
    const intervalMs = parseWaitMs(values.interval, "--interval") ?? DEFAULT_INTERVAL_MS;
    const count = parseCount(values.count, "--count", 1);
    if (values.watch === true) {
      if (intervalMs < LEAST_INTERVAL_MS) throw new UsageError(`--interval must be at least ${LEAST_INTERVAL_MS}ms`);
      const isJson = values.json === true;
      return statusOf(await watchHealth(await connector(values, host), { intervalMs, count, isJson }, host));
    }
    if (values.interval !== undefined || values.count !== undefined) {
      throw new UsageError("--interval and --count require --watch");
    }
    using client = await openClient(values, host);
    const response = await client.health({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
    return {
      text: asText(response, client.addressInUse),
      json: {
        ...healthObject(response),
        ...(client.addressInUse !== undefined && { address_in_use: client.addressInUse }),
      },
      status: response.ready ? 0 : STATUS_NOT_AS_INTENDED,
    };
  },
});

function statusOf(last: Sample | undefined): number {
  if (last === undefined) return 0;
  if ("error" in last) return STATUS_FAILED;
  return last.health.ready ? 0 : STATUS_NOT_AS_INTENDED;
}

function asText(response: Health, address: string | undefined): string {
  const { alive, ready, lastUserActivity, guestTime, idleDeclared } = response;
  const lines: ReportLine[] = [
    ["alive", alive ? "yes" : "no"],
    ["ready", ready ? "yes" : `no (${unreadyReason(response)})`],
    ["last user activity", timeOf(lastUserActivity, guestTime)],
    ["guest time", guestTime === undefined ? "unknown" : timeOf(guestTime)],
    ["idle declared", timeOf(idleDeclared, guestTime)],
    ...(address === undefined ? [] : [["address in use", address] as const]),
    ...sessionLines(response),
  ];
  return reportText(lines);
}

/**
 * Describes the session if a snapshot has affected it: if it is frozen, or has thawed without restore steps. Empty
 * otherwise.
 */
function sessionLines({ frozen, thawedWithoutDuties }: Health): ReportLine[] {
  if (frozen) return [["session", 'frozen for a snapshot; "guestctl restore" thaws it']];
  if (!thawedWithoutDuties) return [];
  return [
    ["session", 'thawed without restore steps: its clones may draw the same random numbers; run "guestctl restore"'],
  ];
}

/** Formats a time and its age, because a guest's clock may be far off, and the time alone would mislead. */
function timeOf(time: Date | undefined, now?: Date): string {
  if (time === undefined) return "never";
  if (now === undefined) return time.toISOString();
  return `${time.toISOString()} (${((now.getTime() - time.getTime()) / 1000).toFixed(1)} s ago)`;
}

export const version: Command = defineCommand({
  usage: ["version [options]"],
  about: `Prints the versions of guestctl and of the agent. A restored sandbox keeps the agent that it had before. Does not count
as user activity.`,
  options: { client: { help: "print only the version of guestctl" }, ...CONNECTION_OPTIONS },
  notes: 'With --json, one object: "client" and "agent" (null if unknown).',
  statuses: "0 if the versions were printed, 125 if there was no answer.",
  examples: ["version", "version --client"],
  async run({ values }, host) {
    // Print guestctl's version first, because it is useful even if the connection fails.
    if (values.json !== true) host.stdout.write(reportText([["guestctl", AGENT_VERSION]]));
    if (values.client === true) return { text: "", json: { client: AGENT_VERSION, agent: null } };
    using client = await openClient(values, host);
    await client.health({ requestTimeoutMs: ANSWER_TIMEOUT_MS });
    const agent = client.agentVersion;
    const text = reportText([["agent", agent ?? "unknown"]], "guestctl".length);
    return { text, json: { client: AGENT_VERSION, agent: agent ?? null } };
  },
});
