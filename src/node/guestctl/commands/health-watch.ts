import { setTimeout as pause } from "node:timers/promises";
import { connect as connectTo, type GuestClient, GuestError, type Health, isTransient } from "../../client/index.ts";
import { type Connector, isDialError } from "../connection/index.ts";
import { failureObject, jsonLine, printable, unreadyReason, writeAll } from "../cli/index.ts";
import { untilSignal } from "./lasting-watch.ts";
import { healthObject } from "./schema.ts";

/** Minimum deadline of a check, in milliseconds. If the interval of the checks is longer, it is the deadline. */
const LEAST_TIMEOUT_MS = 2_000;

export interface HealthWatchOptions {
  readonly intervalMs: number;
  /** Number of checks. Default: unlimited. */
  readonly count?: number | undefined;
  /** Ends the watch when aborted. */
  readonly signal?: AbortSignal | undefined;
}

/** One answer of the agent, with the host's time of the check. */
interface HealthAnswer {
  readonly time: Date;
  readonly health: Health;
  readonly roundTripMs: number;
  /** Guest time minus host time, with an uncertainty of half of the round trip. NaN if the agent sends no time. */
  readonly clockErrorMs: number;
  readonly agentVersion: string | undefined;
  /**
   * The address to print. Undefined, so that none is printed, if guestctl has only one address and that is not a vsock
   * address.
   */
  readonly address: string | undefined;
}

/** The result of one check: the agent's answer, or an error. */
export type Sample = HealthAnswer | { readonly time: Date; readonly error: Error };

/**
 * Checks an agent at every interval. After a failed check it dials again, and asks for the address and credentials
 * again, because they may have changed. Throws GuestError if the first check fails permanently.
 */
async function* samples(
  { connect, redial }: Connector,
  { intervalMs, count = Number.POSITIVE_INFINITY, signal }: HealthWatchOptions,
): AsyncGenerator<Sample> {
  const timeoutMs = Math.max(intervalMs, LEAST_TIMEOUT_MS);
  const isOver = (): boolean => signal?.aborted === true;
  let client: GuestClient | undefined = connect();
  const dialled = async (): Promise<GuestClient> => (redial === undefined ? connect() : connectTo(await redial()));
  try {
    for (let checks = 1; ; checks += 1) {
      const nextMs = performance.now() + intervalMs;
      const sample = await sampleOf(async () => (client ??= await dialled()), timeoutMs, signal);
      if (isOver()) return;
      if ("error" in sample) {
        if (checks === 1 && !mayPass(sample.error)) throw sample.error;
        client?.close();
        client = undefined;
      }
      yield sample;
      if (checks >= count) return;
      await pause(Math.max(0, nextMs - performance.now()), undefined, signal && { signal }).catch(() => undefined);
      if (isOver()) return;
    }
  } finally {
    client?.close();
  }
}

/**
 * Whether the failure of the first check may be temporary. A refusal of the credentials is not temporary, because
 * waiting does not help.
 */
function mayPass(error: Error): boolean {
  if (!(error instanceof GuestError)) return false;
  return error.status === "DEADLINE_EXCEEDED" || (error.status === "UNAVAILABLE" && isTransient(error));
}

/** Makes one check. Rejects only with errors that are bugs of guestctl. */
async function sampleOf(
  dial: () => Promise<GuestClient>,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<Sample> {
  const askedMs = Date.now();
  const started = performance.now();
  try {
    const client = await dial();
    const health = await client.health({ requestTimeoutMs: timeoutMs, signal });
    const roundTripMs = performance.now() - started;
    const guestMs = health.guestTime === undefined ? Number.NaN : health.guestTime.getTime();
    const clockErrorMs = guestMs - (askedMs + roundTripMs / 2);
    const { agentVersion, addressInUse: address } = client;
    return { time: new Date(), health, roundTripMs, clockErrorMs, agentVersion, address };
  } catch (error) {
    if (!(error instanceof GuestError) && !isDialError(error)) throw error;
    return { time: new Date(), error };
  }
}

/**
 * Checks an agent repeatedly until a signal arrives. Writes a line for each change, or, with JSON output, an object for
 * each check. Resolves with the last result. Throws the errors that `samples` throws.
 */
export async function watchHealth(
  connector: Connector,
  options: Omit<HealthWatchOptions, "signal"> & { readonly isJson: boolean },
  host: NodeJS.Process,
): Promise<Sample | undefined> {
  let last: Sample | undefined;
  let seen: Seen = {};
  const signal = untilSignal(host);
  for await (const sample of samples(connector, { ...options, signal })) {
    const news = options.isJson
      ? [jsonLine(sampleObject(sample))]
      : changesIn(seen, sample).map(changeLine(sample.time));
    if (news.length > 0) await writeAll(host.stdout, news.join(""));
    seen = seenWith(seen, sample);
    last = sample;
  }
  return last;
}

/** Formats a change, with the time of day on this host. */
function changeLine(time: Date): (text: string) => string {
  return (text) => `${time.toTimeString().slice(0, 8)}  ${text}\n`;
}

function sampleObject(sample: Sample): object {
  if ("error" in sample) return { time: sample.time.toISOString(), state: "lost", ...failureObject(sample.error) };
  const { time, health, roundTripMs, clockErrorMs, agentVersion, address } = sample;
  return {
    time: time.toISOString(),
    state: "up",
    round_trip_ms: rounded(roundTripMs),
    clock_error_ms: rounded(clockErrorMs),
    agent_version: agentVersion ?? null,
    ...(address !== undefined && { address_in_use: address }),
    health: healthObject(health),
  };
}

/** Rounds to microseconds; null for NaN. */
function rounded(ms: number): number | null {
  return Number.isNaN(ms) ? null : Math.round(ms * 1000) / 1000;
}

/** If a guest's clock changes by more than this relative to the host's clock, it was stepped or stopped. */
const CLOCK_JUMP_MS = 1_000;

/** What earlier checks have found. `changesIn` compares the next check with it. */
export interface Seen {
  /** The last answer. It may be old. */
  readonly answer?: HealthAnswer;
  /** Time at which the agent stopped answering; undefined while it answers. */
  readonly lostSince?: Date;
}

export function seenWith(seen: Seen, sample: Sample): Seen {
  return "error" in sample ? { ...seen, lostSince: seen.lostSince ?? sample.time } : { answer: sample };
}

/** The changes that a check has found, oldest first. */
export function changesIn({ answer: before, lostSince }: Seen, now: Sample): string[] {
  if ("error" in now) {
    const status = now.error instanceof GuestError ? ` [${now.error.status}]` : "";
    return lostSince === undefined ? [printable(`lost: ${now.error.message}${status}`)] : [];
  }
  const texts: string[] = [];
  if (lostSince !== undefined) {
    texts.push(`reconnected after ${((now.time.getTime() - lostSince.getTime()) / 1000).toFixed(1)} s`);
  }
  if (before === undefined) texts.push(now.health.ready ? "up and ready" : `up, ${readiness(now.health)}`);
  if (now.address !== undefined && before?.address !== now.address) texts.push(`address ${printable(now.address)}`);
  if (before === undefined) return texts;
  if (readiness(before.health) !== readiness(now.health)) texts.push(readiness(now.health));
  if (before.health.frozen !== now.health.frozen) texts.push(now.health.frozen ? "session frozen" : "session thawed");
  if (idleMs(before.health) !== idleMs(now.health)) texts.push("idle declared");
  if (before.agentVersion !== now.agentVersion) texts.push(`agent version ${printable(now.agentVersion ?? "unknown")}`);
  const movedMs = now.clockErrorMs - before.clockErrorMs;
  if (Math.abs(movedMs) > CLOCK_JUMP_MS) texts.push(`guest clock moved by ${signedSeconds(movedMs)}`);
  return texts;
}

function readiness(health: Health): string {
  return health.ready ? "ready" : `not ready (${unreadyReason(health)})`;
}

/** Formats a duration as `+1.500 s` or `-0.002 s`. */
function signedSeconds(ms: number): string {
  return `${ms < 0 ? "-" : "+"}${(Math.abs(ms) / 1000).toFixed(3)} s`;
}

function idleMs({ idleDeclared }: Health): number | undefined {
  return idleDeclared === undefined ? undefined : idleDeclared.getTime();
}
