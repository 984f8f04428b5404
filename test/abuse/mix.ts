import { setTimeout as delay } from "node:timers/promises";
import { messageOf } from "../../src/shared/errors.ts";
import { connect } from "../fixtures/exec-stream.ts";
import { memoryOf } from "../fixtures/proc.ts";
import type { Attack, Outcome, Target } from "./attack.ts";
import { KINDS } from "./kinds.ts";

const MIB = 2 ** 20;
const AT_ONCE = 50;
const WARM_UP = 200;
/** Time for the agent to come to rest, where it frees garbage. */
const REST_LIMIT_MS = 45_000;
const POLL_MS = 100;
/** Execs on one connection of a client that comes and goes. */
const EXECS_A_CONNECTION = 3;
/** Number of such clients: the agent takes 64 connections, and one that goes may still be there. */
const COMING_AND_GOING = 12;
/** Growth allowed to the memory of an agent at rest: what its heap and buffer pool keep after work. */
const GROWTH_LIMIT_BYTES = 64 * MIB;
const TOLD_FAILURES = 5;

/**
 * The soak: ordinary execs of every kind, which must lose no byte. Thousands of connections come and go: an agent that
 * miscounted them would refuse one.
 */
async function mixExecs(target: Target): Promise<Outcome> {
  const { agent, inputs } = target;
  // What the first ones open once or keep is no growth.
  const warmUp = Math.min(WARM_UP, inputs);
  await runMix(target, warmUp);
  const ownBefore = memoryOf(agent.pid).ownBytes;
  const { failures, bytes, incomplete, cleanUps } = await runMix(target, inputs);
  const grownBytes = await grown(agent.pid, ownBefore);
  const measured = [
    `${(bytes / MIB).toFixed(1)} MiB of output right by SHA-256`,
    `${cleanUps.done} of ${cleanUps.due} clean-ups done`,
    `${(grownBytes / MIB).toFixed(1)} MiB grown`,
  ].join(", ");
  if (failures.length > 0)
    throw new Error(`${failures.length} wrong: ${failures.slice(0, TOLD_FAILURES).join("; ")}: ${measured}`);
  if (incomplete > 0) throw new Error(`${incomplete} complete outputs called incomplete: ${measured}`);
  if (cleanUps.done < cleanUps.due) throw new Error(`a tree did not have its whole grace: ${measured}`);
  if (grownBytes >= GROWTH_LIMIT_BYTES) throw new Error(`${measured}: over ${GROWTH_LIMIT_BYTES / MIB} MiB`);
  return { inputs: warmUp + inputs, measured };
}

interface Mixed {
  readonly failures: string[];
  bytes: number;
  /** Exits that reported complete output as incomplete. */
  incomplete: number;
  /** Trees that were ended with something to clean up, and those of them that did. */
  readonly cleanUps: { due: number; done: number };
}

async function runMix({ agent }: Target, execs: number): Promise<Mixed> {
  const mixed: Mixed = { failures: [], bytes: 0, incomplete: 0, cleanUps: { due: 0, done: 0 } };
  let next = 0;
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
      try {
        const moved = await kind.run(agent, client, number);
        mixed.bytes += moved.bytes;
        if (moved.incomplete === true) mixed.incomplete++;
        if (moved.cleanedUp !== undefined) mixed.cleanUps.due++;
        if (moved.cleanedUp === true) mixed.cleanUps.done++;
      } catch (error) {
        mixed.failures.push(`${number} (${kind.name}): ${messageOf(error)}`);
      }
    }
    client.close();
  };
  await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => worker(index >= COMING_AND_GOING)));
  return mixed;
}

/** By how much the agent's own memory has grown: at once where that is within the limit, else once it has rested. */
async function grown(pid: number, ownBefore: number): Promise<number> {
  const deadline = performance.now() + REST_LIMIT_MS;
  for (;;) {
    const grownBytes = memoryOf(pid).ownBytes - ownBefore;
    if (grownBytes < GROWTH_LIMIT_BYTES || performance.now() > deadline) return grownBytes;
    await delay(POLL_MS);
  }
}

export const mixedExecs: readonly Attack[] = [{ name: "mixed execs", weight: 10, run: mixExecs }];
