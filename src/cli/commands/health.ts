import { toJson } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { type HealthResponse, HealthResponseSchema } from "../../gen/svc/guest/v1alpha1/health_pb.ts";
import { type Command, defineCommand } from "../command-line.ts";
import { ANSWER_TIMEOUT_MS, CONNECTION_OPTIONS, openClient } from "../connection.ts";
import { STATUS_NOT_READY, UsageError } from "../errors.ts";

export const health: Command = defineCommand({
  usage: ["health [options]"],
  about: "Asks an agent for liveness, readiness, last user activity, guest time and the workload's idle declaration.",
  options: CONNECTION_OPTIONS,
  notes: `With --json, the fields of the schema (HealthResponse): "alive", "ready", "ready_cmd_exit", "last_user_activity",
"guest_time", and "idle_declared" once there has been one.`,
  statuses: "0 ready, 1 not ready, 125 no answer.",
  examples: ["health --address 127.0.0.1:7071 --credentials ./creds", "health --json | jq .ready"],
  completes: ["nothing"],
  async run({ values, positionals }, host) {
    if (positionals.length > 0) throw new UsageError("health takes no arguments");
    const client = await openClient(values, host);
    try {
      const response = await client.health({ deadlineMs: ANSWER_TIMEOUT_MS });
      host.stdout.write(values.json === true ? asJson(response) : asText(response));
      return response.ready ? 0 : STATUS_NOT_READY;
    } finally {
      client.close();
    }
  },
});

function asJson(response: HealthResponse): string {
  const json = toJson(HealthResponseSchema, response, { alwaysEmitImplicit: true, useProtoFieldName: true });
  return `${JSON.stringify(json)}\n`;
}

function asText(response: HealthResponse): string {
  const { alive, ready, readyCmdExit, lastUserActivity, guestTime, idleDeclared } = response;
  const lines = [
    ["alive", alive ? "yes" : "no"],
    ["ready", ready ? "yes" : `no (ready_cmd: ${readyCmdExit < 0 ? "no verdict yet" : `exit ${readyCmdExit}`})`],
    ["last user activity", timeOf(lastUserActivity, guestTime)],
    ["guest time", guestTime === undefined ? "unknown" : timeOf(guestTime)],
    ["idle declared", timeOf(idleDeclared, guestTime)],
  ];
  return lines.map(([name = "", value = ""]) => `${`${name}:`.padEnd(20)}${value}\n`).join("");
}

/** A time, and how long before `now` it was: people read guest clocks that may be far off. */
function timeOf(time: Timestamp | undefined, now?: Timestamp): string {
  if (time === undefined) return "never";
  const date = timestampDate(time);
  const agoMs = now === undefined ? undefined : timestampDate(now).getTime() - date.getTime();
  return agoMs === undefined ? date.toISOString() : `${date.toISOString()} (${(agoMs / 1000).toFixed(1)} s ago)`;
}
