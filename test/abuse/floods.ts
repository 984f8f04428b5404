import { setTimeout as delay } from "node:timers/promises";
import { cpuMs } from "../fixtures/cpu.ts";
import { memoryOf } from "../fixtures/footprint.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { endAll } from "../fixtures/kept-execs.ts";
import type { Attack, Outcome, Target } from "./attack.ts";

/** As many as an agent keeps, each with its part of what all of them may hold. */
const FLOODS = 64;
const MIB = 2 ** 20;
const GIB = 2 ** 30;
const BUFFER_BYTES = (32 * MIB) / FLOODS;
/** For pools and heap to be as large as they get. */
const WARM_UP_MS = 5_000;
const MEASURED_MS = 20_000;
/** Allowed growth of memory: the heap varies by this between two collections. */
const GROWTH_LIMIT_BYTES = 16 * MIB;
/** Allowed cost of dropped output, in seconds of processor time for a GiB. */
const CPU_LIMIT = 0.5;

/** Commands that flood their buffers, which drop the oldest output, without an attached client. */
async function floodUnread({ agent, ...target }: Target): Promise<Outcome> {
  using client = clientOf(agent);
  for (let number = 0; number < FLOODS; number++) {
    const keep = { name: `flood-${number}`, bufferBytes: BUFFER_BYTES };
    await client.exec({ args: ["yes", `line of flood ${number}`], keep }).detach();
  }
  const measured = async (): Promise<{ bytes: number; cpuMs: number; ownBytes: number }> => {
    const execs = await client.listExecs();
    const bytes = execs.reduce((sum, { stdoutOffset }) => sum + stdoutOffset, 0);
    return { bytes, cpuMs: cpuMs(agent.pid), ownBytes: memoryOf(agent.pid).ownBytes };
  };
  await delay(WARM_UP_MS);
  let [before, after] = [await measured(), await measured()];
  await target.quietly(async () => {
    before = await measured();
    await delay(MEASURED_MS);
    after = await measured();
  });
  await endAll(agent);
  const writtenGib = (after.bytes - before.bytes) / GIB;
  const cost = (after.cpuMs - before.cpuMs) / 1_000 / writtenGib;
  const grownBytes = after.ownBytes - before.ownBytes;
  const figures = `${writtenGib.toFixed(2)} GiB, ${cost.toFixed(2)} s of CPU a GiB, ${(grownBytes / MIB).toFixed(1)} MiB more`;
  if (!(cost < CPU_LIMIT)) throw new Error(`${figures}: over ${CPU_LIMIT} s a GiB`);
  if (grownBytes >= GROWTH_LIMIT_BYTES) throw new Error(`${figures}: over ${GROWTH_LIMIT_BYTES / MIB} MiB`);
  return { inputs: FLOODS, measured: figures };
}

export const floods: readonly Attack[] = [{ name: "floods that nobody reads", weight: 1, run: floodUnread }];
