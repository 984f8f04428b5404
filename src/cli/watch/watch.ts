import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { type GuestClient, GuestError, type HealthResponse } from "../../client/index.ts";
import { HealthResponseSchema } from "../../gen/svc/guest/v1alpha1/health_pb.ts";
import type { Connector } from "../connection.ts";
import { failureObject } from "../failure.ts";
import { jsonLine, messageObject } from "../output.ts";

/** Least time to wait for an answer; a longer interval extends it. */
const LEAST_TIMEOUT_MS = 2_000;

/** Failures that may be temporary. */
const PASSING: ReadonlySet<string> = new Set(["UNAVAILABLE", "DEADLINE_EXCEEDED"]);

/** Options of a watch. */
export interface WatchOptions {
  readonly intervalMs: number;
  /** Number of samples. Default: until aborted. */
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

/** Watches an agent and writes a line of JSON for each sample. Resolves and rejects as `watch` does. */
export async function watchAsLines(
  connector: Connector,
  options: WatchOptions,
  host: NodeJS.Process,
): Promise<Sample | undefined> {
  const write = async (sample: Sample): Promise<void> => {
    if (!host.stdout.write(jsonLine(sampleObject(sample)))) await once(host.stdout, "drain");
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
    health: messageObject(HealthResponseSchema, health),
  };
}

/** Rounds to microseconds; null for NaN. */
function rounded(ms: number): number | null {
  return Number.isNaN(ms) ? null : Math.round(ms * 1000) / 1000;
}

/** An agent's answer, and this host's time. */
export interface Answer {
  readonly time: Date;
  readonly health: HealthResponse;
  readonly roundTripMs: number;
  /** Guest time minus host time; half of the round trip is uncertain. NaN where the agent does not tell its time. */
  readonly clockErrorMs: number;
  readonly agentVersion: string | undefined;
}

/** One sample of an agent: its answer, or why there is none. */
export type Sample = Answer | { readonly time: Date; readonly error: GuestError };

/** Samples an agent repeatedly. Reconnects after a failure: a restored guest does not know the old connection. */
class Sampler {
  readonly #connect: () => GuestClient;
  readonly #timeoutMs: number;
  #client: GuestClient | undefined;

  /** @param timeoutMs time to wait for an answer, including connecting */
  constructor(connect: () => GuestClient, timeoutMs: number) {
    this.#connect = connect;
    this.#timeoutMs = timeoutMs;
  }

  /** Calls Health once. Rejects only with errors that are no GuestError. */
  async sample(signal: AbortSignal): Promise<Sample> {
    const askedMs = Date.now();
    const started = performance.now();
    try {
      const client = (this.#client ??= this.#connect());
      const health = await client.health({ deadlineMs: this.#timeoutMs, signal });
      const roundTripMs = performance.now() - started;
      const guestMs = health.guestTime === undefined ? Number.NaN : timestampMs(health.guestTime);
      const clockErrorMs = guestMs - (askedMs + roundTripMs / 2);
      return { time: new Date(), health, roundTripMs, clockErrorMs, agentVersion: client.agentVersion };
    } catch (error) {
      if (!(error instanceof GuestError)) throw error;
      this.close();
      return { time: new Date(), error };
    }
  }

  /** Closes the connection. */
  close(): void {
    this.#client?.close();
    this.#client = undefined;
  }
}
