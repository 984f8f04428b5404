import { setTimeout as pause } from "node:timers/promises";
import { type GuestClient, GuestError, type Health } from "../../client/index.ts";
import type { Connector } from "../connection.ts";
import { failureObject } from "../failure.ts";
import { jsonLine, healthObject, writeAll } from "../output.ts";

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

/** An agent's answer, and this host's time. */
export interface Answer {
  readonly time: Date;
  readonly health: Health;
  readonly roundTripMs: number;
  /** Guest time minus host time; half of the round trip is uncertain. NaN where the agent does not tell its time. */
  readonly clockErrorMs: number;
  readonly agentVersion: string | undefined;
}

/** One sample of an agent: its answer, or why there is none. */
export type Sample = Answer | { readonly time: Date; readonly error: GuestError };

/**
 * Looks at an agent at every interval until the signal is aborted. After a failure it dials anew: a restored guest does not
 * know the old connection. Throws GuestError if the first look fails with what no waiting can mend.
 */
export async function* samples(
  { connect }: Connector,
  { intervalMs, count = Number.POSITIVE_INFINITY }: WatchOptions,
  signal: AbortSignal = new AbortController().signal,
): AsyncGenerator<Sample> {
  const timeoutMs = Math.max(intervalMs, LEAST_TIMEOUT_MS);
  let client: GuestClient | undefined;
  try {
    for (let looks = 1; !signal.aborted; looks += 1) {
      const nextMs = performance.now() + intervalMs;
      client ??= connect();
      const sample = await sampleOf(client, timeoutMs, signal);
      if (signal.aborted) return;
      if ("error" in sample) {
        if (looks === 1 && !PASSING.has(sample.error.status)) throw sample.error;
        client.close();
        client = undefined;
      }
      yield sample;
      if (looks >= count) return;
      // Only the signal ends it early.
      await pause(Math.max(0, nextMs - performance.now()), undefined, { signal }).catch(() => undefined);
    }
  } finally {
    client?.close();
  }
}

/** Calls Health once. Rejects only with errors that are no GuestError. */
async function sampleOf(client: GuestClient, timeoutMs: number, signal: AbortSignal): Promise<Sample> {
  const askedMs = Date.now();
  const started = performance.now();
  try {
    const health = await client.health({ deadlineMs: timeoutMs, signal });
    const roundTripMs = performance.now() - started;
    const guestMs = health.guestTime === undefined ? Number.NaN : health.guestTime.getTime();
    const clockErrorMs = guestMs - (askedMs + roundTripMs / 2);
    return { time: new Date(), health, roundTripMs, clockErrorMs, agentVersion: client.agentVersion };
  } catch (error) {
    if (!(error instanceof GuestError)) throw error;
    return { time: new Date(), error };
  }
}

/** Watches an agent and writes a line of JSON for each sample. Resolves with the last one. Throws what `samples` throws. */
export async function watchAsLines(
  connector: Connector,
  options: WatchOptions,
  host: NodeJS.Process,
): Promise<Sample | undefined> {
  let last: Sample | undefined;
  for await (const sample of samples(connector, options)) {
    last = sample;
    await writeAll(host.stdout, jsonLine(sampleObject(sample)));
  }
  return last;
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
    health: healthObject(health),
  };
}

/** Rounds to microseconds; null for NaN. */
function rounded(ms: number): number | null {
  return Number.isNaN(ms) ? null : Math.round(ms * 1000) / 1000;
}
