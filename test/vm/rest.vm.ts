import assert from "node:assert/strict";
import { after, describe, test, type TestContext } from "node:test";
import { Stage } from "./cases/stage.ts";
import type { Machine } from "./harness/machine.ts";
import { type Activity, activityOf, forgetWritten, pass } from "./harness/oracle.ts";

/** Longer than every timer of a call or connection, in guest time. */
const REST_MS = 32_000;
/** The guest's kernel reports the end of the client's connection within this time. */
const CONNECTION_END_MS = 2_000;
/** An idle agent frees memory 10 s after its last call. */
const IDLE_MS = 12_000;
const MOST_WAKE_UPS = 2;
const MOST_PAGES = 50;

/** What an agent still does after PRE_SNAPSHOT is repeated by every clone of the snapshot. */
describe("after PRE_SNAPSHOT", () => {
  const stage = new Stage({});
  after(() => stage.end());
  /** The agent's activity when the snapshot was taken. */
  let atSnapshot: Activity;

  /** Asserts that the agent has done almost nothing since `before`. */
  async function assertIdle(t: TestContext, machine: Machine, before: Activity): Promise<void> {
    const { wakeUps, writtenPages } = await activityOf(machine.oraclePort);
    const [woken, written] = [wakeUps - before.wakeUps, writtenPages - before.writtenPages];
    t.diagnostic(`${woken} wake-ups, ${written} written pages`);
    assert.ok(wakeUps > 0, "the oracle sees the agent");
    assert.ok(woken <= MOST_WAKE_UPS, `${woken} wake-ups`);
    assert.ok(written <= MOST_PAGES, `${written} written pages`);
  }

  test("an idle agent wakes up at most twice in half a minute and writes at most 50 pages", async (t) => {
    await stage.boot();
    {
      using client = stage.client();
      for (let n = 0; n < 50; n++) await client.run(["/bin/busybox", "true"]);
      await pass(stage.machine, IDLE_MS);
      await forgetWritten(stage.machine.oraclePort);
      await client.run(["/bin/busybox", "true"]);
      const { writtenPages } = await activityOf(stage.machine.oraclePort);
      assert.ok(writtenPages > MOST_PAGES, `a command writes more: ${writtenPages} pages`);
      await client.snapshots.prepare();
    }
    await pass(stage.machine, CONNECTION_END_MS);
    await forgetWritten(stage.machine.oraclePort);
    const before = await activityOf(stage.machine.oraclePort);
    await pass(stage.machine, REST_MS);
    await assertIdle(t, stage.machine, before);
  });

  test("two clones do not wake the agent before their first call", async (t) => {
    {
      using client = stage.client();
      await client.snapshots.prepare();
    }
    await pass(stage.machine, CONNECTION_END_MS);
    await forgetWritten(stage.machine.oraclePort);
    atSnapshot = await activityOf(stage.machine.oraclePort);
    const file = await stage.guest.snapshot(stage.machine);
    for (let n = 0; n < 2; n++) {
      await using clone = await stage.guest.start(file);
      await pass(clone, REST_MS);
      await assertIdle(t, clone, atSnapshot);
      using client = stage.guest.client(clone);
      assert.equal((await client.run(["/bin/busybox", "true"])).exitCode, 0);
    }
  });
});
