/** Runs beside the attacks in its own thread: calls Health as a node agent does, and samples the agent's memory. */
import { parentPort, workerData } from "node:worker_threads";
import { clientOf, type Dialled } from "../../test/fixtures/guest-client.ts";
import { memoryOf } from "../soak/footprint.ts";

/** The agent to watch. */
export type Watched = Dialled & { readonly pid: number };

/** Observations since the last report. */
export interface Seen {
  readonly healthMs: readonly number[];
  /** Calls that got no answer: a restore ends all connections, an attack must not. */
  readonly failed: number;
  readonly peakOwnBytes: number;
}

const PAUSE_MS = 20;
const ANSWER_LIMIT_MS = 20_000;

const agent = workerData as Watched;
const client = clientOf(agent);
let healthMs: number[] = [];
let failed = 0;
let peakOwnBytes = 0;

async function ask(): Promise<void> {
  const began = performance.now();
  try {
    await client.health({ deadlineMs: ANSWER_LIMIT_MS });
    healthMs.push(performance.now() - began);
  } catch {
    failed += 1;
  }
  peakOwnBytes = Math.max(peakOwnBytes, memoryOf(agent.pid).ownBytes || 0);
  setTimeout(() => void ask(), PAUSE_MS);
}

parentPort?.on("message", () => {
  const seen: Seen = { healthMs, failed, peakOwnBytes };
  parentPort?.postMessage(seen, []);
  [healthMs, failed, peakOwnBytes] = [[], 0, 0];
});
void ask();
