import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import type { Machine } from "./machine.ts";

const LIMIT_MS = 90_000;
const ATTEMPT_MS = 5_000;
const CLOCK_SAMPLES = 8;
const NS_PER_MS = 1_000_000n;

/** Questions to the guest's oracle (test/vm/guest/oracle.c). */
export type Question =
  | "random"
  | "vdso"
  | "clocks"
  | "reseed"
  | "memory"
  | "forget"
  | "activity"
  | "made"
  | "halt"
  | `draws ${string}`
  | "beats"
  | `kill ${"agent" | "launcher"} ${number}`;

function attempt(port: number, questions: readonly Question[], limitMs: number): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    let problem = new Error("closed without an answer");
    const lines = (): string[] => text.split("\n").slice(0, -1);
    socket.setTimeout(limitMs, () => socket.destroy(new Error("no answer")));
    socket.setEncoding("utf8").on("data", (part: string) => {
      text += part;
      if (lines().length === questions.length) socket.end();
    });
    socket.on("error", (error) => {
      problem = error;
    });
    // Not before the oracle has closed its end: in a snapshot it would wait for a connection that no clone's QEMU knows.
    socket.on("close", () => {
      if (lines().length === questions.length) resolve(lines());
      else reject(problem);
    });
    socket.write(questions.map((question) => `${question}\n`).join(""));
  });
}

/**
 * Asks the oracle; one answer for each question. Waits for a guest that is still booting: QEMU's network accepts before
 * the guest listens. For random numbers of a guest that listens, give one attempt all the time: a second one would draw
 * others.
 */
export async function ask(
  port: number,
  questions: readonly Question[],
  limitMs: number = LIMIT_MS,
  attemptMs: number = Math.min(limitMs, ATTEMPT_MS),
): Promise<string[]> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    try {
      return await attempt(port, questions, attemptMs);
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await pause(50);
    }
  }
}

/** What the agent's threads have done. */
export interface Activity {
  /** Number of times that a thread has begun to wait. */
  readonly wakeUps: number;
  /** Number of pages that the agent has written since `forgetWritten`. */
  readonly writtenPages: number;
}

/** Makes the guest's kernel forget which pages the agent has written. */
export async function forgetWritten(port: number): Promise<void> {
  const [errno] = await ask(port, ["forget"]);
  if (errno !== "0") throw new Error(`the guest cannot forget written pages: errno ${errno}`);
}

/** Asks the guest's oracle, so that the agent stays idle. */
export async function activityOf(port: number): Promise<Activity> {
  const [line = ""] = await ask(port, ["activity"]);
  const [wakeUps = 0, writtenPages = 0] = line.split(" ").map(Number);
  return { wakeUps, writtenPages };
}

const CLOCK_TOLERANCE_MS = 100;

/**
 * Tolerance for a clock that a call has set: 100 ms, or the call's duration if this machine was too busy for that. The
 * guest cannot know how long the call took to arrive.
 */
export function clockTolerance(callMs: number): number {
  return Math.max(CLOCK_TOLERANCE_MS, callMs);
}

/** Clocks of a guest. */
export interface GuestClocks {
  /** Its CLOCK_REALTIME minus the host's, in milliseconds. */
  readonly driftMs: number;
  /** Its CLOCK_BOOTTIME, in milliseconds. */
  readonly uptimeMs: number;
}

/** Reads the guest's clocks several times. Returns the quickest reading, which is the most exact. */
export async function readClocks(port: number): Promise<GuestClocks> {
  let best: GuestClocks = { driftMs: Number.NaN, uptimeMs: Number.NaN };
  let shortestMs = Number.POSITIVE_INFINITY;
  for (let sample = 0; sample < CLOCK_SAMPLES; sample++) {
    const askedMs = Date.now();
    const began = performance.now();
    const [line = ""] = await ask(port, ["clocks"]);
    const tookMs = performance.now() - began;
    const [realtimeNs = "0", uptimeNs = "0"] = line.split(" ");
    if (tookMs >= shortestMs) continue;
    shortestMs = tookMs;
    best = {
      driftMs: Number(BigInt(realtimeNs) / NS_PER_MS) - (askedMs + tookMs / 2),
      uptimeMs: Number(BigInt(uptimeNs) / NS_PER_MS),
    };
  }
  return best;
}

/** After a thaw of thousands, an emulated guest on a busy host answers late. */
const BEATS_LIMIT_MS = 600_000;
const BEATS_ATTEMPT_MS = 60_000;

/** How many rounds each hardship has made (test/vm/guest/hardship.c), by its name. */
export type Beats = ReadonlyMap<string, number>;

/** The present number of rounds, from the guest's memory. */
export async function beatsOf(machine: Machine): Promise<Beats> {
  const [line = ""] = await ask(machine.oraclePort, ["beats"], BEATS_LIMIT_MS, BEATS_ATTEMPT_MS);
  const words = line.split(" ");
  const names = words.filter((_, index) => index % 2 === 0);
  return new Map(names.map((name, index) => [name, Number(words[2 * index + 1])]));
}

/** Resolves once each of these has made another round since then. */
export async function allBeat(machine: Machine, since: Beats, names: readonly string[]): Promise<void> {
  for (;;) {
    const now = await beatsOf(machine);
    if (names.every((name) => (now.get(name) ?? 0) > (since.get(name) ?? 0))) return;
  }
}

/** Waits in guest time, which stops or lags in an emulated guest on a busy host. */
export async function pass(machine: Machine, durationMs: number): Promise<void> {
  const { uptimeMs } = await readClocks(machine.oraclePort);
  while ((await readClocks(machine.oraclePort)).uptimeMs < uptimeMs + durationMs) await pause(durationMs / 30);
}
