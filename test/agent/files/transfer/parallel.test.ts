import assert from "node:assert/strict";
import { readFile, truncate, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import type { WriteFileRequest } from "../../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { dataMessage, FileCalls, headerMessage, testFolder } from "../../../fixtures/files.ts";
import { clientOf } from "../../../fixtures/guest-client.ts";
import { memoryOf } from "../../../fixtures/proc.ts";

const MIB = 1024 ** 2;
const TRANSFERS = 64;
const CLIENTS = 8;
/** Together more than the bound, so that an agent which held all of them would break it. */
const EACH_BYTES = 4 * MIB;
/** On top of the agent's memory at rest; docs/agent/files.md. */
const BOUND_MIB = 160;

const folder = forAllTests(await testFolder());
const agent = forAllTests(await startAgent());
const clients = Array.from({ length: CLIENTS }, () => forAllTests(new FileCalls(agent)));

/** Runs 64 transfers at once, spread over the connections; returns the most memory seen, and the slowest Health. */
async function measured(transfer: (files: FileCalls, index: number) => Promise<void>): Promise<number> {
  const restMiB = memoryOf(agent.pid).ownBytes / MIB;
  let mostMiB = 0;
  const over = new AbortController();
  using health = clientOf(agent);
  const transfers = Promise.all(
    Array.from({ length: TRANSFERS }, (_, i) => transfer(clients[i % CLIENTS] as FileCalls, i)),
  ).finally(() => over.abort());
  while (!over.signal.aborted) {
    assert.ok((await health.health()).alive);
    mostMiB = Math.max(mostMiB, memoryOf(agent.pid).ownBytes / MIB);
    // Sample the memory while the transfers run.
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await transfers;
  return mostMiB - restMiB;
}

describe("64 transfers at once", () => {
  it("read within the bound, to slow clients too, while Health is answered", async (t) => {
    const path = folder.at("read");
    await writeFile(path, "");
    await truncate(path, EACH_BYTES);
    const extraMiB = await measured(async (files) => {
      let received = 0;
      for await (const chunk of files.chunks({ path })) {
        received += chunk.data.length;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      assert.equal(received, EACH_BYTES);
    });
    t.diagnostic(`${extraMiB.toFixed(0)} MiB`);
    assert.ok(extraMiB < BOUND_MIB, `${extraMiB} MiB`);
  });

  it("write within the bound, from stalling clients too, while Health is answered", async (t) => {
    const extraMiB = await measured(async (files, index) => {
      async function* messages(): AsyncGenerator<WriteFileRequest> {
        yield headerMessage({ path: folder.at(`written-${index}`), size: BigInt(EACH_BYTES) });
        for (let i = 0; i < EACH_BYTES / (MIB / 4); i++) yield dataMessage(Buffer.alloc(MIB / 4, index));
      }
      await files.writeMessages(messages());
      assert.ok((await readFile(folder.at(`written-${index}`))).equals(Buffer.alloc(EACH_BYTES, index)));
    });
    t.diagnostic(`${extraMiB.toFixed(0)} MiB`);
    assert.ok(extraMiB < BOUND_MIB, `${extraMiB} MiB`);
  });
});
