import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { fromJson } from "@bufbuild/protobuf";
import { type Timestamp, timestampMs, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { HealthResponse } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { DECLARE_IDLE_LINE, postJson } from "../../fixtures/declare-idle.ts";
import { exec, ExecStream } from "../../fixtures/exec-stream.ts";
import { ask, type RpcFailure } from "../../fixtures/rpc-clients.ts";

const agent = forAllTests(await startAgent({ process: { args: ["sleep", "1000"] } }));

function health(of: RunningAgent = agent, token = of.token): Promise<HealthResponse> {
  return ask(of, GuestAgent.method.health, {}, { token });
}

function ms(time: Timestamp | undefined): number {
  assert.ok(time !== undefined);
  return timestampMs(time);
}

describe("Health", () => {
  it("Health reports liveness, readiness and the guest's time", async () => {
    const earliest = Date.now();
    const report = await health();
    assert.deepEqual([report.alive, report.ready, report.readyCmdExit], [true, true, 0]);
    const time = ms(report.guestTime);
    assert.ok(time >= earliest - 1 && time <= Date.now() + 1);
  });

  it("Health rejects a missing and a wrong token with the same message", async () => {
    const failures = await Promise.all(
      ["", "wrong", `${agent.token}x`].map((token) =>
        health(agent, token).then(
          () => assert.fail("answered"),
          (error: unknown) => error as RpcFailure,
        ),
      ),
    );
    for (const failure of failures) {
      assert.deepEqual([failure.code, failure.reason, failure.message], [16, "UNAUTHENTICATED", failures[0]?.message]);
      assert.ok(!failure.message.includes(agent.token));
    }
  });
});

describe("contract: last_user_activity", () => {
  it("an exec's start and end count as user activity, Health does not", async () => {
    const first = ms((await health()).lastUserActivity);
    assert.equal(ms((await health()).lastUserActivity), first);
    const earliest = Date.now();
    await exec(agent, { args: ["true"] });
    const second = ms((await health()).lastUserActivity);
    assert.ok(second >= earliest - 1);
    assert.equal(ms((await health()).lastUserActivity), second);
  });

  it("last_user_activity is the current time while an exec without terminal is attached", async () => {
    using stream = new ExecStream(agent);
    stream.start({ args: ["sleep", "1000"] });
    await stream.next();
    for (let asked = 0; asked < 2; asked++) {
      const askedMs = Date.now();
      const { lastUserActivity, guestTime } = await health();
      assert.ok(ms(lastUserActivity) >= askedMs - 1 && ms(lastUserActivity) <= ms(guestTime));
    }
  });

  it("an open terminal counts as user activity only when someone types", async () => {
    // An agent of its own: an earlier test's command may end only now, and that is activity.
    await using own = await startAgent();
    using stream = new ExecStream(own);
    stream.start({ args: ["cat"], terminal: {} });
    await stream.next();
    const earlier = ms((await health(own)).lastUserActivity);
    assert.equal(ms((await health(own)).lastUserActivity), earlier);
    stream.stdin("x\r");
    await stream.until("x\r\nx\r\n");
    assert.ok(ms((await health(own)).lastUserActivity) > earlier);
  });
});

describe("contract: idle_declared", () => {
  it("Health returns `idle_declared` only after DeclareIdle, with the time that DeclareIdle returned", async () => {
    await using own = await startAgent();
    assert.equal((await health(own)).idleDeclared, undefined);
    const activity = ms((await health(own)).lastUserActivity);
    const { body } = await postJson(own.workloadSocket);
    const { declaredAt } = JSON.parse(body) as { declaredAt: string };
    const report = await health(own);
    assert.deepEqual(report.idleDeclared, fromJson(TimestampSchema, declaredAt));
    assert.equal(ms(report.lastUserActivity), activity);
  });

  it("the workload can declare itself idle through SVC_WORKLOAD_SOCKET", async () => {
    await using own = await startAgent({ process: { args: ["sh", "-c", `${DECLARE_IDLE_LINE}; exec sleep 1000`] } });
    await until(async () => (await health(own)).idleDeclared !== undefined, "the workload has declared itself idle");
    assert.ok(ms((await health(own)).idleDeclared) <= Date.now());
  });
});

describe("contract: the workload socket", () => {
  it("every user of the guest can access the workload socket", async () => {
    const { stdout } = await exec(agent, { args: ["stat", "-c", "%a %F", agent.workloadSocket] });
    assert.equal(String(stdout), "666 socket\n");
  });
});
