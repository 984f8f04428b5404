import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { messageOf } from "../../src/shared/errors.ts";
import { type RunningAgent, startAgent } from "../../test/fixtures/agent.ts";
import { connect } from "../../test/fixtures/exec-stream.ts";
import { type ConnectionsSeen, watchConnections } from "./connections.ts";
import { type Footprint, memoryOf, settledFootprint } from "./footprint.ts";
import { KINDS } from "./kinds.ts";

/** Execs before the first footprint, so that it has what the agent opens once. */
const WARM_UP = 200;
/** Time for the agent to come to rest, where it frees garbage. */
const REST_LIMIT_MS = 45_000;
const POLL_MS = 100;
/** Execs on one connection of a client that comes and goes. */
const EXECS_A_CONNECTION = 3;
/** Number of such clients: the agent takes 64 connections, and one that goes may still be there. */
const COMING_AND_GOING = 12;

/** Growth allowed to the memory of an agent at rest: what its heap and buffer pool keep after work. */
export const GROWTH_LIMIT_BYTES: number = 64 * 2 ** 20;

/** Outcome of a soak. */
export interface SoakResult {
  readonly execs: number;
  readonly perKind: ReadonlyMap<string, number>;
  readonly failures: readonly string[];
  readonly bytes: number;
  /** Exits that reported complete output as incomplete. */
  readonly incomplete: number;
  /** Trees that were ended with something to clean up, and those of them that did. */
  readonly cleanUps: { readonly due: number; readonly done: number };
  readonly seconds: number;
  readonly before: Footprint;
  readonly after: Footprint;
  readonly grownBytes: number;
  readonly peakBytes: number;
  readonly connections: ConnectionsSeen;
}

/** Runs `execs` mixed execs, `atOnce` at a time, and compares the agent's footprints before and after. */
export async function soak(execs: number, atOnce: number): Promise<SoakResult> {
  await using agent = await startAgent({ env: { SVC_LOG_LEVEL: "debug" } });
  await runMix(agent, WARM_UP, atOnce);
  const before = await settledFootprint(agent.pid, undefined, isDeepStrictEqual);
  const ownBefore = memoryOf(agent.pid).ownBytes;
  const stop = new AbortController();
  const watching = watchConnections(agent, stop.signal);
  const began = performance.now();
  const work = await runMix(agent, execs, atOnce);
  const seconds = (performance.now() - began) / 1000;
  stop.abort();
  const connections = await watching;
  const after = await settledFootprint(agent.pid, before, isDeepStrictEqual);
  const { peakBytes } = memoryOf(agent.pid);
  const grownBytes = await grown(agent, ownBefore);
  return { execs, seconds, before, after, grownBytes, peakBytes, connections, ...work };
}

async function runMix(
  agent: RunningAgent,
  execs: number,
  atOnce: number,
): Promise<Pick<SoakResult, "failures" | "bytes" | "incomplete" | "cleanUps" | "perKind">> {
  const failures: string[] = [];
  const perKind = new Map<string, number>();
  let next = 0;
  let bytes = 0;
  let incomplete = 0;
  const cleanUps = { due: 0, done: 0 };
  const worker = async (stays: boolean): Promise<void> => {
    let client = connect(agent);
    for (let own = 1; next < execs; own++) {
      if (!stays && own % EXECS_A_CONNECTION === 0) {
        client.close();
        client = connect(agent);
      }
      const number = next++;
      const kind = KINDS[number % KINDS.length];
      if (kind === undefined) return;
      perKind.set(kind.name, (perKind.get(kind.name) ?? 0) + 1);
      try {
        const moved = await kind.run(agent, client, number);
        bytes += moved.bytes;
        if (moved.incomplete === true) incomplete++;
        if (moved.cleanedUp !== undefined) cleanUps.due++;
        if (moved.cleanedUp === true) cleanUps.done++;
      } catch (error) {
        failures.push(`${number} (${kind.name}): ${messageOf(error)}`);
      }
    }
    client.close();
  };
  await Promise.all(Array.from({ length: atOnce }, (_, index) => worker(index >= COMING_AND_GOING)));
  return { failures, bytes, incomplete, cleanUps, perKind };
}

/** By how much the agent's own memory has grown: at once where that is within the limit, else once it has rested. */
async function grown(agent: RunningAgent, ownBefore: number): Promise<number> {
  const deadline = performance.now() + REST_LIMIT_MS;
  for (;;) {
    const grownBytes = memoryOf(agent.pid).ownBytes - ownBefore;
    if (grownBytes < GROWTH_LIMIT_BYTES || performance.now() > deadline) return grownBytes;
    await delay(POLL_MS);
  }
}
