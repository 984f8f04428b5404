import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { endCase } from "../cases/sandbox-cases.ts";
import { Stage } from "../cases/stage.ts";
import { agentMemory } from "../harness/footprint.ts";

const HOOKS = { preSnapshot: { args: ["/bin/busybox", "true"] } };

/** When the agent gives memory back, and what the host does then. */
const ORDERS: readonly { readonly when: string; readonly ask: (stage: Stage) => Promise<void> }[] = [
  {
    when: "at PRE_SNAPSHOT",
    ask: async (stage) => {
      using client = stage.client();
      const { ran, exitCode } = await client.snapshots.prepare();
      assert.deepEqual([ran, exitCode], [true, 0]);
      const snapshot = await stage.guest.snapshot(stage.machine);
      await stage.replaceMachine(() => stage.guest.start(snapshot));
    },
  },
  { when: "at its first rest", ask: () => Promise.resolve() },
];

/**
 * Node for arm64 has variables in the page in which its constants end, which the agent once gave back too. Commands
 * alone did not use them.
 */
for (const { when, ask } of ORDERS) {
  describe(`after the agent unmapped its code ${when}`, () => {
    const stage = new Stage({ hooks: HOOKS });
    after(() => stage.end());

    test(`the agent unmaps a third of its files ${when} and keeps serving`, async (t) => {
      await stage.boot();
      {
        using client = stage.client();
        const { stdout } = await client.run(["/bin/busybox", "uname", "-m"]);
        assert.equal(stdout, "aarch64\n");
        await client.files.writeFile("/tmp/file", randomBytes(100_000));
        assert.equal((await client.files.stat("/tmp/file")).size, 100_000);
      }
      const before = await agentMemory(stage.machine);
      await ask(stage);
      let { mappedBytes } = await agentMemory(stage.machine);
      while (mappedBytes > (before.mappedBytes * 2) / 3) {
        await pause(500);
        ({ mappedBytes } = await agentMemory(stage.machine));
      }
      assert.ok(mappedBytes > 0, "the agent lives");
      t.diagnostic(`${(before.mappedBytes / 1e6).toFixed(1)} MB, then ${(mappedBytes / 1e6).toFixed(1)} MB`);
    });

    test("DeclareIdle, restore steps and Exec work after the agent unmapped unused code", async () => {
      {
        using client = stage.client();
        assert.equal((await client.health()).idleDeclared, undefined);
        await client.run(["/bin/busybox", "killall", "-USR1", "workload"]);
        while ((await client.health()).idleDeclared === undefined) await pause(50);
        const duties = await client.snapshots.duties({ entropy: randomBytes(64), hostTime: new Date() });
        const { entropyBytesMixed, entropyCredited, degraded } = duties;
        assert.deepEqual([entropyBytesMixed, entropyCredited, degraded], [64, true, ""]);
      }
      using client = stage.client();
      const content = randomBytes(100_000);
      const { exitCode: code, stdout } = await client.run(["/bin/busybox", "cat"], {
        input: content,
        encoding: "buffer",
      });
      assert.equal(code, 0);
      assert.ok(stdout.equals(content));
    });

    endCase(stage);
  });
}
