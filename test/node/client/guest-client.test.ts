import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { GuestError } from "../../../src/node/client/index.ts";
import { HookKind } from "../../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

describe("GuestClient", () => {
  test("runs hooks, configured or not", async () => {
    await using agent = await startAgent({ hooks: { pre_snapshot: { args: ["sh", "-c", "echo quiet; exit 4"] } } });
    using client = clientOf(agent);
    const ran = await client.runHook({ kind: HookKind.PRE_SNAPSHOT });
    assert.deepEqual([ran.ran, ran.exitCode, ran.stdoutTail], [true, 4, "quiet\n"]);
    assert.equal((await client.runHook({ kind: HookKind.POST_RESTORE })).ran, false);
  });

  test("has the restore duties performed", async () => {
    await using agent = await startAgent();
    using client = clientOf(agent);
    // Without host_time the clock of this machine is left alone.
    const report = await client.runRestoreDuties({ entropy: randomBytes(64) });
    assert.equal(report.clockStepped, false);
    assert.equal(typeof report.degraded, "string");
    await assert.rejects(client.runRestoreDuties({ entropy: new Uint8Array() }), (error) => {
      assert.ok(error instanceof GuestError);
      return error.status === "INVALID_ARGUMENT";
    });
  });
});
