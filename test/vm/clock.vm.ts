import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, describe, test } from "node:test";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Stage } from "./cases/stage.ts";
import { clockTolerance, readClocks } from "./harness/oracle.ts";

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;

describe("a guest that booted in 1970", () => {
  const stage = new Stage({ bootTime: "1970-01-02T00:00:00" });
  after(() => stage.end());
  let appliedMs = 0;
  let toleranceMs = 0;

  test("lets the caller in, whose certificate is not valid yet", async () => {
    await stage.boot();
    using client = stage.client();
    const { guestTime } = await client.health();
    assert.ok(Number(guestTime?.seconds) < 10 * 86_400, "the guest believes that it is 1970");
  });

  test("leaves its clock alone without host_time, and with empty entropy", async () => {
    using client = stage.client();
    const hostTime = timestampFromMs(Date.now());
    await assert.rejects(client.runRestoreDuties({ entropy: new Uint8Array(), hostTime }), {
      status: "INVALID_ARGUMENT",
    });
    const duties = await client.runRestoreDuties({ entropy: randomBytes(32) });
    assert.deepEqual([duties.clockStepped, duties.clockDriftMs, duties.degraded], [false, 0n, ""]);
    assert.ok((await readClocks(stage.machine.oraclePort)).driftMs < -50 * YEAR_MS);
  });

  test("refuses a host_time outside the caller's certificate", async () => {
    using client = stage.client();
    const hostTime = timestampFromMs(Date.now() + YEAR_MS);
    const duties = await client.runRestoreDuties({ entropy: randomBytes(32), hostTime });
    assert.deepEqual([duties.clockStepped, duties.degraded], [false, "clock_outside_cert"]);
  });

  test("has its clock set, and says by how much it was wrong", async () => {
    using client = stage.client();
    await client.health();
    appliedMs = Date.now();
    const began = performance.now();
    const duties = await client.runRestoreDuties({ entropy: randomBytes(32), hostTime: timestampFromMs(appliedMs) });
    toleranceMs = clockTolerance(performance.now() - began);
    assert.deepEqual([duties.clockStepped, duties.degraded], [true, ""]);
    assert.ok(Number(duties.clockDriftMs) < -50 * YEAR_MS);
    const { driftMs } = await readClocks(stage.machine.oraclePort);
    assert.ok(Math.abs(driftMs) < toleranceMs, `${driftMs} ms off`);
  });

  test("has been active since it was started, not since 1970", async () => {
    using client = stage.client();
    const { guestTime, lastUserActivity } = await client.health();
    assert.ok(Number(guestTime?.seconds) - Number(lastUserActivity?.seconds) < HOUR_MS / 1_000);
  });

  test("does not let a repeated or delayed call put the clock back", async () => {
    using client = stage.client();
    for (const hostMs of [appliedMs, appliedMs - 1_000]) {
      const duties = await client.runRestoreDuties({ entropy: randomBytes(32), hostTime: timestampFromMs(hostMs) });
      assert.deepEqual([duties.clockStepped, duties.degraded], [false, "clock_stale"]);
      assert.equal(duties.entropyBytesMixed, 32);
    }
    const { driftMs } = await readClocks(stage.machine.oraclePort);
    assert.ok(Math.abs(driftMs) < toleranceMs, `${driftMs} ms off`);
  });
});
