import { once } from "node:events";
import { toJson } from "@bufbuild/protobuf";
import { HealthResponseSchema } from "../../gen/svc/guest/v1alpha1/health_pb.ts";
import type { Connector } from "../connection/index.ts";
import { failureObject } from "../failure.ts";
import type { Sample } from "./sampler.ts";
import { watch, type WatchOptions } from "./watch.ts";

/** Watches an agent and writes a line of JSON for each look. Resolves and rejects as `watch` does. */
export async function watchAsLines(
  connector: Connector,
  options: WatchOptions,
  host: NodeJS.Process,
): Promise<Sample | undefined> {
  const write = async (sample: Sample): Promise<void> => {
    if (!host.stdout.write(`${JSON.stringify(sampleObject(sample))}\n`)) await once(host.stdout, "drain");
  };
  return watch(connector, options, write, new AbortController().signal);
}

function sampleObject(sample: Sample): object {
  if ("error" in sample) return { time: sample.time.toISOString(), state: "lost", ...failureObject(sample.error) };
  const { time, health, roundTripMs, clockErrorMs, agentVersion } = sample;
  return {
    time: time.toISOString(),
    state: "up",
    round_trip_ms: rounded(roundTripMs),
    clock_error_ms: rounded(clockErrorMs),
    agent_version: agentVersion ?? null,
    health: toJson(HealthResponseSchema, health, { alwaysEmitImplicit: true, useProtoFieldName: true }),
  };
}

/** To microseconds; null where there is no number. */
function rounded(ms: number): number | null {
  return Number.isNaN(ms) ? null : Math.round(ms * 1000) / 1000;
}
