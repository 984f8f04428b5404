import { setTimeout as delay } from "node:timers/promises";
import { startAgent } from "../../test/fixtures/agent.ts";
import { cpuMs } from "../../test/fixtures/cpu.ts";
import { clientOf } from "../../test/fixtures/guest-client.ts";
import { memoryOf } from "./footprint.ts";

/** As many as an agent keeps, each with its part of what all of them may hold. */
const FLOODS = 64;
const BUFFER_BYTES = (32 * 2 ** 20) / FLOODS;
/** For pools and heap to be as large as they get. */
const WARM_UP_MS = 5_000;

/** Cost of floods without an attached client. */
export interface FloodsResult {
  readonly seconds: number;
  /** Bytes that the commands wrote in that time, together. */
  readonly bytes: number;
  /** Processor time of the agent, user and system. */
  readonly cpuSeconds: number;
  readonly warmBytes: number;
  /** Memory of its own that the agent gained after the warm-up. */
  readonly grownBytes: number;
}

/**
 * Lets 64 commands flood their buffers, which drop the oldest output, without an attached client, and measures the
 * agent.
 */
export async function floods(seconds: number): Promise<FloodsResult> {
  await using agent = await startAgent();
  using client = clientOf(agent);
  for (let number = 0; number < FLOODS; number++) {
    const keep = { name: `flood-${number}`, bufferBytes: BUFFER_BYTES };
    await client.exec({ args: ["yes", `line of flood ${number}`], keep }).detach();
  }
  const written = async (): Promise<number> =>
    (await client.listExecs()).reduce((sum, { stdoutOffset }) => sum + Number(stdoutOffset), 0);
  await delay(WARM_UP_MS);
  const before = { bytes: await written(), cpuMs: cpuMs(agent.pid), own: memoryOf(agent.pid).ownBytes };
  await delay(seconds * 1_000);
  const after = { bytes: await written(), cpuMs: cpuMs(agent.pid), own: memoryOf(agent.pid).ownBytes };
  return {
    seconds,
    bytes: after.bytes - before.bytes,
    cpuSeconds: (after.cpuMs - before.cpuMs) / 1_000,
    warmBytes: before.own,
    grownBytes: after.own - before.own,
  };
}
