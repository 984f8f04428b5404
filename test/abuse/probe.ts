/** Runs beside the attacks in its own thread: calls Health as a node agent does, and samples the agent's memory. */
import { setTimeout as delay } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { GuestError } from "../../src/node/client/index.ts";
import { clientOf, type Dialled } from "../fixtures/guest-client.ts";
import { memoryOf } from "../fixtures/footprint.ts";

/** The agent to watch. */
export type Watched = Dialled & {
  readonly pid: number;
  /** Time for an answer to Health. */
  readonly answerLimitMs: number;
};

/** Observations since the last report, including the call that was under way when this report was requested. */
export interface Seen {
  readonly healthMs: readonly number[];
  /** Calls that got no answer in time. Those whose connection a restore ended do not count. */
  readonly unanswered: number;
  readonly peakOwnBytes: number;
}

/** A request to this thread: report the observations, or make no calls for a while. */
export type Request = "seen" | "pause" | "resume";

const PAUSE_MS = 20;

const agent = workerData as Watched;
const client = clientOf(agent);
let healthMs: number[] = [];
let unanswered = 0;
let peakOwnBytes = 0;
let isAsked = false;
let isPaused = false;

parentPort?.on("message", (request: Request) => {
  if (request === "seen") isAsked = true;
  else isPaused = request === "pause";
});
for (;;) {
  const began = performance.now();
  try {
    if (!isPaused) await client.health({ timeoutMs: agent.answerLimitMs });
    if (!isPaused) healthMs.push(performance.now() - began);
  } catch (error) {
    if (error instanceof GuestError && error.status === "DEADLINE_EXCEEDED") unanswered += 1;
  }
  peakOwnBytes = Math.max(peakOwnBytes, memoryOf(agent.pid).ownBytes || 0);
  if (isAsked) {
    const seen: Seen = { healthMs, unanswered, peakOwnBytes };
    parentPort?.postMessage(seen, []);
    [healthMs, unanswered, peakOwnBytes, isAsked] = [[], 0, 0, false];
  }
  await delay(PAUSE_MS);
}
