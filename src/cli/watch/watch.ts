import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { toJson } from "@bufbuild/protobuf";
import type { GuestError } from "../../client/index.ts";
import { HealthResponseSchema } from "../../gen/svc/guest/v1alpha1/health_pb.ts";
import type { Connector } from "../connection.ts";
import { failureObject } from "../failure.ts";
import { type Sample, Sampler } from "./sampler.ts";

/** Time for an answer at least; a longer interval is time as well. */
const LEAST_TIMEOUT_MS = 2_000;

/** Failures that may pass by themselves. */
const PASSING: ReadonlySet<string> = new Set(["UNAVAILABLE", "DEADLINE_EXCEEDED"]);

/** How an agent is watched. */
export interface WatchOptions {
  readonly intervalMs: number;
  /** End after that many looks. Default: go on until aborted. */
  readonly count?: number | undefined;
}

/**
 * Looks at an agent at every interval until the signal is aborted, and hands every look on. Resolves with the last one;
 * rejects with GuestError if the first fails with what no waiting can mend.
 */
export async function watch(
  { connect }: Connector,
  { intervalMs, count = Number.POSITIVE_INFINITY }: WatchOptions,
  onSample: (sample: Sample) => void | Promise<void>,
  signal: AbortSignal,
): Promise<Sample | undefined> {
  const sampler = new Sampler(connect, Math.max(intervalMs, LEAST_TIMEOUT_MS));
  let last: Sample | undefined;
  try {
    for (let looks = 1; !signal.aborted; looks += 1) {
      const nextMs = performance.now() + intervalMs;
      const sample = await sampler.sample(signal);
      if (signal.aborted) break;
      if (last === undefined && "error" in sample && !mayPass(sample.error)) throw sample.error;
      last = sample;
      await onSample(sample);
      if (looks >= count) break;
      await pauseUntil(nextMs, signal);
    }
    return last;
  } finally {
    sampler.close();
  }
}

function mayPass({ status }: GuestError): boolean {
  return PASSING.has(status);
}

async function pauseUntil(timeMs: number, signal: AbortSignal): Promise<void> {
  try {
    await pause(Math.max(0, timeMs - performance.now()), undefined, { signal });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

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
