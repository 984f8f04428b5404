import { setTimeout as delay } from "node:timers/promises";
import { startAgent } from "../../test/fixtures/agent.ts";
import { cpuMs } from "../../test/fixtures/cpu.ts";
import { clientOf } from "../../test/fixtures/guest-client.ts";
import { memoryOf } from "./footprint.ts";

/** As many as an agent keeps, each with its part of what all of them may hold. */
const FLOODS = 64;
const MIB = 2 ** 20;
const GIB = 2 ** 30;
const BUFFER_BYTES = (32 * MIB) / FLOODS;
/** For pools and heap to be as large as they get. */
const WARM_UP_MS = 5_000;
/** Allowed growth of memory: the heap varies by this between two collections. */
const GROWTH_LIMIT_BYTES = 16 * MIB;
/** Allowed cost of dropped output, in seconds of processor time for a GiB. */
const CPU_LIMIT = 0.5;

/**
 * Lets 64 commands flood their buffers, which drop the oldest output, without an attached client, and measures the
 * agent. Resolves with the figures in words, and whether they are within their limits.
 */
export async function floods(seconds: number): Promise<{ readonly lines: string[]; readonly isClean: boolean }> {
  await using agent = await startAgent();
  using client = clientOf(agent);
  for (let number = 0; number < FLOODS; number++) {
    const keep = { name: `flood-${number}`, bufferBytes: BUFFER_BYTES };
    await client.exec({ args: ["yes", `line of flood ${number}`], keep }).detach();
  }
  const measured = async (): Promise<{ bytes: number; cpuMs: number; ownBytes: number }> => {
    const execs = await client.listExecs();
    const bytes = execs.reduce((sum, { stdoutOffset }) => sum + Number(stdoutOffset), 0);
    return { bytes, cpuMs: cpuMs(agent.pid), ownBytes: memoryOf(agent.pid).ownBytes };
  };
  await delay(WARM_UP_MS);
  const before = await measured();
  await delay(seconds * 1_000);
  const after = await measured();
  const writtenGib = (after.bytes - before.bytes) / GIB;
  const cpuSeconds = (after.cpuMs - before.cpuMs) / 1_000;
  const grownBytes = after.ownBytes - before.ownBytes;
  const [own, grown] = [before.ownBytes, grownBytes].map((bytes) => (bytes / MIB).toFixed(1));
  return {
    lines: [
      `${FLOODS} floods that nobody reads: ${writtenGib.toFixed(2)} GiB in ${seconds} s`,
      `processor time of the agent: ${cpuSeconds.toFixed(1)} s, ${(cpuSeconds / writtenGib).toFixed(2)} s/GiB (limit ${CPU_LIMIT})`,
      `memory: ${own} MiB, grown by ${grown} MiB since (limit ${GROWTH_LIMIT_BYTES / MIB})`,
    ],
    isClean: cpuSeconds / writtenGib < CPU_LIMIT && grownBytes < GROWTH_LIMIT_BYTES,
  };
}
