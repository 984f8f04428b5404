import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, describe, test } from "node:test";
import { Stage } from "./cases/stage.ts";
import { clockTolerance, readClocks } from "./harness/oracle.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const YEAR_MS = 365 * 24 * HOUR_MS;

describe("a guest that booted in 1970", () => {
  const stage = new Stage({ bootTime: "1970-01-02T00:00:00" });
  after(() => stage.end());
  let appliedMs = 0;
  let toleranceMs = 0;

  test("a guest whose clock says 1970 accepts a client certificate issued today", async () => {
    await stage.boot();
    using client = stage.client();
    const { guestTime } = await client.health();
    assert.ok(Number(guestTime) < 10 * DAY_MS, "the guest believes that it is 1970");
  });

  test("the restore steps correct a 1970 guest clock and report the drift", async () => {
    using client = stage.client();
    await client.health();
    appliedMs = Date.now();
    const began = performance.now();
    const duties = await client.snapshots.duties({ entropy: randomBytes(32), hostTime: new Date(appliedMs) });
    toleranceMs = clockTolerance(performance.now() - began);
    assert.deepEqual([duties.clockStepped, duties.degraded], [true, ""]);
    assert.ok(duties.clockDriftMs < -50 * YEAR_MS);
    const { driftMs } = await readClocks(stage.machine.oraclePort);
    assert.ok(Math.abs(driftMs) < toleranceMs, `${driftMs} ms off`);
  });

  test("after the first clock step, last_user_activity is less than an hour ago", async () => {
    using client = stage.client();
    const { guestTime, lastUserActivity } = await client.health();
    assert.ok(Number(guestTime) - Number(lastUserActivity) < HOUR_MS);
  });

  test("repeated or delayed restore steps do not set the clock back", async () => {
    using client = stage.client();
    for (const hostMs of [appliedMs, appliedMs - 1_000]) {
      const duties = await client.snapshots.duties({ entropy: randomBytes(32), hostTime: new Date(hostMs) });
      assert.deepEqual([duties.clockStepped, duties.degraded], [false, "clock_stale"]);
      assert.equal(duties.entropyBytesMixed, 32);
    }
    const { driftMs } = await readClocks(stage.machine.oraclePort);
    assert.ok(Math.abs(driftMs) < toleranceMs, `${driftMs} ms off`);
  });
});

describe("a guest whose clock is a day ahead", () => {
  const stage = new Stage({ bootTime: new Date(Date.now() + DAY_MS).toISOString().slice(0, 19) });
  after(() => stage.end());
  /** End of the last user activity, on the host's steady clock. */
  let activeAtMs = 0;

  /** The age of the activity by Health, less its real age. */
  async function errorOfActivity(): Promise<number> {
    using client = stage.client();
    const { guestTime, lastUserActivity } = await client.health();
    assert.ok(guestTime !== undefined && lastUserActivity !== undefined);
    return guestTime.getTime() - lastUserActivity.getTime() - (performance.now() - activeAtMs);
  }

  /** The duties, with this time of the host. */
  async function duties(hostMs: number): Promise<readonly [stepped: boolean, degraded: string]> {
    using client = stage.client();
    await client.health();
    const report = await client.snapshots.duties({ entropy: randomBytes(32), hostTime: new Date(hostMs) });
    return [report.clockStepped, report.degraded];
  }

  test("setting the clock does not change the age of last_user_activity", async () => {
    await stage.boot();
    using client = stage.client();
    assert.equal((await client.run(["/bin/busybox", "true"])).exitCode, 0);
    activeAtMs = performance.now();
    assert.ok(Math.abs(await errorOfActivity()) < 10_000);
    assert.deepEqual(await duties(Date.now()), [true, ""]);
    for (let look = 0; look < 2; look++) {
      const errorMs = await errorOfActivity();
      assert.ok(Math.abs(errorMs) < 10_000, `${errorMs} ms off`);
    }
  });

  test("a clock set to a wrong time is corrected by the next restore steps", async () => {
    assert.deepEqual(await duties(Date.now() + DAY_MS), [true, ""]);
    assert.ok((await readClocks(stage.machine.oraclePort)).driftMs > DAY_MS / 2);
    assert.deepEqual(await duties(Date.now()), [true, ""]);
    assert.ok(Math.abs((await readClocks(stage.machine.oraclePort)).driftMs) < HOUR_MS);
    assert.ok(Math.abs((await errorOfActivity()) - DAY_MS) < 10_000, "a reported pause stays reported");
  });
});
