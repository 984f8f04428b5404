import type { Health } from "../../client/index.ts";
import { type Command, defineCommand } from "../command-line.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { STATUS_NOT_READY } from "../errors.ts";
import { healthObject, type ReportLine, reportText, unreadyReason } from "../output.ts";

export const health: Command = defineCommand({
  usage: ["health [options]"],
  about: "Asks an agent for liveness, readiness, last user activity, guest time and the workload's idle declaration.",
  options: CONNECTION_OPTIONS,
  notes: `With --json, the fields of the schema (HealthResponse): "alive", "ready", "ready_cmd_exit", "last_user_activity",
"guest_time", "frozen", "thawed_without_duties", and "idle_declared" once there has been one.`,
  statuses: "0 ready, 1 not ready, 125 no answer.",
  examples: ["health --address 127.0.0.1:7071 --credentials ./creds", "health --json | jq .ready"],
  async run({ values }, host) {
    using client = await openClient(values, host);
    const response = await client.health({ deadlineMs: ANSWER_TIMEOUT_MS });
    return {
      text: asText(response),
      json: healthObject(response),
      status: response.ready ? 0 : STATUS_NOT_READY,
    };
  },
});

function asText(response: Health): string {
  const { alive, ready, lastUserActivity, guestTime, idleDeclared } = response;
  const lines: ReportLine[] = [
    ["alive", alive ? "yes" : "no"],
    ["ready", ready ? "yes" : `no (${unreadyReason(response)})`],
    ["last user activity", timeOf(lastUserActivity, guestTime)],
    ["guest time", guestTime === undefined ? "unknown" : timeOf(guestTime)],
    ["idle declared", timeOf(idleDeclared, guestTime)],
  ];
  return reportText(lines, 20);
}

/** A time, and how long before `now` it was: people read guest clocks that may be far off. */
function timeOf(time: Date | undefined, now?: Date): string {
  if (time === undefined) return "never";
  if (now === undefined) return time.toISOString();
  return `${time.toISOString()} (${((now.getTime() - time.getTime()) / 1000).toFixed(1)} s ago)`;
}
