import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, describe, test } from "node:test";
import { endCase } from "./cases/sandbox-cases.ts";
import { Stage } from "./cases/stage.ts";
import { readClocks } from "./harness/oracle.ts";

/** capabilities(7). */
const CAP_SYS_ADMIN = 21;
const CAP_SYS_TIME = 25;

describe("a sandbox without CAP_SYS_ADMIN and CAP_SYS_TIME", () => {
  const stage = new Stage({ dropCapabilities: [CAP_SYS_ADMIN, CAP_SYS_TIME] });
  after(() => stage.end());

  test("says what it could not do, and changes no clock", async () => {
    await stage.boot();
    using client = stage.client();
    const then = await readClocks(stage.machine.oraclePort);
    const hostTime = new Date(Date.now() + 3_600_000);
    const duties = await client.runRestoreDuties({ entropy: randomBytes(48), hostTime });
    assert.equal(duties.entropyBytesMixed, 48);
    assert.equal(duties.entropyCredited, false);
    assert.equal(duties.clockStepped, false);
    assert.equal(duties.degraded, "entropy_credit:EPERM;crng_reseed:EPERM;clock_set:EPERM");
    const now = await readClocks(stage.machine.oraclePort);
    assert.ok(Math.abs(now.driftMs - then.driftMs) < 1_000, `${then.driftMs} ms, then ${now.driftMs} ms`);
  });

  test("runs commands all the same", async () => {
    using client = stage.client();
    const { stdout } = await client.run({ args: ["/bin/busybox", "grep", "CapBnd", "/proc/self/status"] });
    const bounding = BigInt(`0x${/CapBnd:\s+(\w+)/.exec(stdout.toString())?.[1]}`);
    assert.equal(bounding & ((1n << BigInt(CAP_SYS_ADMIN)) | (1n << BigInt(CAP_SYS_TIME))), 0n);
  });

  endCase(stage);
});
