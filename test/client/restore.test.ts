import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { GuestError, restoreDuties, restoreSequence } from "../../src/client/index.ts";
import { GuestAgent } from "../../src/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { failureOf } from "../fixtures/guest-errors.ts";
import { type StandIn, startStandIn } from "../fixtures/stand-in-agent.ts";

/** An agent whose duties end every connection, the first time before they have been answered. */
async function restored(): Promise<StandIn> {
  let times = 0;
  const agent = await startStandIn({
    service: GuestAgent,
    answers: {
      Health: () => ({
        alive: true,
        ready: true,
        guestTime: { seconds: BigInt(Math.round(Date.now() / 1000) + 3600) },
      }),
      RunRestoreDuties: () => {
        if (times++ > 0) return { entropyBytesMixed: 64, degraded: "entropy_credit:EPERM" };
        agent.drop();
        return new Promise(() => {});
      },
      RunHook: () => ({ ran: true, exitCode: 3 }),
    },
  });
  return agent;
}

describe("restoreSequence", () => {
  test("has the duties done until they are, then runs the hook once over a connection of its own, then asks", async () => {
    await using agent = await restored();
    const { duties, hook, health, clockErrorMs } = await restoreSequence(() => agent.redial());
    assert.equal(duties.degraded, "entropy_credit:EPERM");
    assert.deepEqual([hook.ran, hook.exitCode, health.ready], [true, 3, true]);
    assert.ok(Math.abs(clockErrorMs - 3_600_000) < 60_000, `${clockErrorMs} ms`);
    const attempt = ["Health", "RunRestoreDuties"];
    assert.deepEqual(agent.calls, [...attempt, ...attempt, "Health", "RunHook", "Health"]);
  });

  test("dials with what is right at the moment: credentials may be new after the duties", async () => {
    await using agent = await restored();
    let dialled = 0;
    await restoreSequence(async () => {
      dialled++;
      await Promise.resolve();
      return agent.redial();
    });
    assert.equal(dialled, 3);
  });

  test("does not run the hook again when it fails", async () => {
    const agent = await startStandIn({
      service: GuestAgent,
      answers: {
        Health: () => ({ alive: true }),
        RunRestoreDuties: () => ({}),
        RunHook: () => {
          agent.drop();
          return new Promise(() => {});
        },
      },
    });
    await using _ = agent;
    assert.equal((await failureOf(agent.client.restore())).status, "UNAVAILABLE");
    assert.equal(agent.calls.filter((name) => name === "RunHook").length, 1);
  });

  test("gives an agent that does not come back up after reachMs", async () => {
    const agent = await startStandIn({ service: GuestAgent });
    await agent[Symbol.asyncDispose]();
    await assert.rejects(
      restoreDuties(() => agent.redial(), { reachMs: 300 }),
      (error) => error instanceof GuestError && ["DEADLINE_EXCEEDED", "UNAVAILABLE"].includes(error.status),
    );
  });
});
