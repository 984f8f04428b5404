import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { plain } from "../../../src/node/client/plain.ts";
import { GuestError, type RestoredGuest, restoreDuties, restoreSequence } from "../../../src/node/client/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type StandIn, startGuestWithClock, startStandIn } from "../../fixtures/stand-in-agent.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { failureOf } from "../../fixtures/guest-client.ts";

/** Twice the clock error at which a restore warns, and more. */
const LATE_ANSWER_MS = 300;

/** An agent whose duties end the first connection before they have been answered, and then leave it frozen once. */
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
        if (times++ > 0) return { entropyBytesMixed: 64, degraded: "entropy_credit:EPERM", frozen: times === 2 };
        agent.drop();
        return new Promise(() => {});
      },
      RunHook: () => ({ ran: true, exitCode: 3 }),
    },
  });
  return agent;
}

describe("restoreSequence", () => {
  test("restoreSequence repeats the restore steps until the session thaws, then runs the hook", async () => {
    await using agent = await restored();
    const { duties, hook, health, clockErrorMs } = await restoreSequence(() => agent.redial());
    assert.equal(duties.degraded, "entropy_credit:EPERM");
    assert.deepEqual([hook.ran, hook.exitCode, health.ready], [true, 3, true]);
    assert.ok(Math.abs(clockErrorMs - 3_600_000) < 60_000, `${clockErrorMs} ms`);
    const attempt = ["Health", "RunRestoreDuties"];
    const look = ["Health", "Health", "Health"];
    assert.deepEqual(agent.calls, [...attempt, ...attempt, ...attempt, "Health", ...look, "RunHook", ...look]);
  });

  test("restoreSequence repeats the restore steps once if the clock is still wrong", async () => {
    await using agent = await startGuestWithClock([-3_600_000, 0]);
    const { duties, repeated, clockErrorMs } = await restoreSequence(() => agent.redial());
    assert.equal(duties.clockStepped, true);
    assert.equal(repeated?.duties.entropyBytesMixed, 64);
    assert.ok(Math.abs((repeated?.clockErrorMs ?? 0) + 3_600_000) < 60_000, `${repeated?.clockErrorMs} ms`);
    assert.ok(Math.abs(clockErrorMs) < 60_000, `${clockErrorMs} ms`);
    const steps = agent.calls.filter((name) => name !== "Health");
    assert.deepEqual(steps, ["RunRestoreDuties", "RunRestoreDuties", "RunHook"]);
  });

  test("if the clock stays wrong, restoreSequence repeats its steps at most once", async () => {
    for (const [clockStepped, times] of [
      [true, 2],
      [false, 1],
    ] as const) {
      await using agent = await startGuestWithClock([-3_600_000], clockStepped);
      const { clockErrorMs } = await restoreSequence(() => agent.redial());
      assert.ok(Math.abs(clockErrorMs + 3_600_000) < 60_000, `${clockErrorMs} ms`);
      assert.equal(agent.calls.filter((name) => name === "RunRestoreDuties").length, times);
    }
  });

  test("late Health answers cause neither repeated restore steps nor a warning", async () => {
    await using agent = await startStandIn({
      service: GuestAgent,
      answers: {
        Health: async () => {
          const guestTime = timestampFromMs(Date.now());
          // As beside a client that gets little CPU time, and reads each answer late.
          await setTimeout(LATE_ANSWER_MS);
          return { alive: true, ready: true, guestTime };
        },
        RunRestoreDuties: () => ({ entropyBytesMixed: 64, entropyCredited: true, clockStepped: true }),
        RunHook: () => ({ ran: true }),
      },
    });
    const { repeated, warnings, clockErrorMs } = await restoreSequence(() => agent.redial());
    assert.deepEqual([repeated, warnings], [undefined, []], `the clock seems to be off by ${clockErrorMs} ms`);
  });

  test("after a refused spec, restoreSequence fails with SPEC_REFUSED and runs no hook", async () => {
    await using agent = await startStandIn({
      service: GuestAgent,
      answers: {
        Health: () => ({ alive: true }),
        RunRestoreDuties: () => ({ frozen: true, degraded: "entropy_credit:EPERM;process_env:refused" }),
      },
    });
    const failed = await failureOf(restoreSequence(() => agent.redial(), { reachTimeoutMs: 600_000 }));
    assert.deepEqual([failed.code, failed.status], ["SPEC_REFUSED", "FAILED_PRECONDITION"]);
    assert.match(failed.nextStep ?? "", /^replace the spec file that the agent refused/);
    assert.deepEqual(agent.calls, ["Health", "RunRestoreDuties"]);
  });

  test("restoreSequence does not repeat a failed hook", async () => {
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
    assert.equal((await failureOf(agent.client.snapshots.completeRestore())).status, "UNAVAILABLE");
    assert.equal(agent.calls.filter((name) => name === "RunHook").length, 1);
  });

  for (const hanging of ["RunRestoreDuties", "RunHook", "Health"]) {
    test(`requestTimeoutMs ends a whole restore if the agent does not answer ${hanging}`, async () => {
      const never = (): Promise<never> => new Promise(() => {});
      let hooks = 0;
      await using agent = await startStandIn({
        service: GuestAgent,
        answers: {
          Health: () => (hanging === "Health" && hooks > 0 ? never() : { alive: true }),
          RunRestoreDuties: () => (hanging === "RunRestoreDuties" ? never() : {}),
          RunHook: () => (hanging === "RunHook" ? never() : { ran: ++hooks > 0 }),
        },
      });
      const limits = { requestTimeoutMs: 1_000, reachTimeoutMs: 600_000 };
      const error = await failureOf(agent.client.snapshots.completeRestore(limits));
      assert.equal(error.status, "DEADLINE_EXCEEDED");
    });
  }

  test("`requestTimeoutMs` and `signal` end a restore whose dial function never returns", async () => {
    await using agent = await startStandIn({ service: GuestAgent });
    const dials = Promise.withResolvers<RestoredGuest>();
    const late = failureOf(restoreSequence(() => dials.promise, { requestTimeoutMs: 100 }));
    assert.deepEqual(
      [(await late).status, (await late).message.includes("requestTimeoutMs")],
      ["DEADLINE_EXCEEDED", true],
    );
    const aborted = failureOf(restoreDuties(() => dials.promise, { signal: AbortSignal.timeout(100) }));
    assert.equal((await aborted).code, "ABORT_ERR");
    // Both clients that come too late are closed.
    const guest = agent.redial();
    dials.resolve(guest);
    await dials.promise;
    await assert.rejects(guest.health(), { code: "CLIENT_CLOSED" });
  });

  test("restoreDuties fails after `reachTimeoutMs` if its dial function never returns", async () => {
    const never = new Promise<RestoredGuest>(() => undefined);
    const { status, code, message } = await failureOf(restoreDuties(() => never, { reachTimeoutMs: 100 }));
    assert.deepEqual([status, code], ["UNAVAILABLE", "DIAL_TIMED_OUT"]);
    assert.match(message, /^reachTimeoutMs expired before the function that connects/);
  });

  test("`requestTimeoutMs` also limits the time in which a restore reaches the agent", async () => {
    const agent = await startStandIn({ service: GuestAgent });
    await agent[Symbol.asyncDispose]();
    const dial = (): RestoredGuest => agent.redial();
    const error = await failureOf(restoreSequence(dial, { requestTimeoutMs: 300, reachTimeoutMs: Infinity }));
    assert.ok(["DEADLINE_EXCEEDED", "UNAVAILABLE"].includes(error.status), error.message);
  });

  test("`dutiesTimeoutMs` limits each call that runs restore steps", async () => {
    await using agent = await startStandIn({
      service: GuestAgent,
      answers: { Health: () => ({ alive: true }), RunRestoreDuties: () => new Promise<never>(() => {}) },
    });
    const error = await failureOf(restoreDuties(() => agent.redial(), { dutiesTimeoutMs: 200 }));
    assert.equal(error.status, "DEADLINE_EXCEEDED");
  });

  test("`restoreDuties` and `restoreSequence` reject an unknown option", async () => {
    const dial = (): RestoredGuest => assert.fail("nothing is dialled");
    const options = { timeoutMs: 5 } as object;
    for (const refused of [restoreDuties(dial, options), restoreSequence(dial, options)])
      assert.match((await failureOf(refused)).message, /^there is no timeoutMs in the options of restore/);
  });

  test("restoreDuties backs off while the agent is shutting down", async () => {
    let dialled = 0;
    const leaving: RestoredGuest = {
      health: () => Promise.resolve(plain(HealthResponseSchema, create(HealthResponseSchema, { alive: true }))),
      snapshots: {
        hook: () => assert.fail("no duties, no hook"),
        duties: () =>
          Promise.reject(new GuestError({ status: "UNAVAILABLE", reason: "SHUTTING_DOWN", message: "leaving" })),
      },
      close: () => undefined,
    };
    const dial = (): RestoredGuest => {
      dialled++;
      return leaving;
    };
    const error = await failureOf(restoreDuties(dial, { reachTimeoutMs: 2_000 }));
    assert.equal(error.reason, "SHUTTING_DOWN");
    // Pauses of 50, 100, 200, 400 and 800 ms: never more than six attempts, however fast this machine is.
    assert.ok(dialled <= 6, `${dialled} attempts`);
    const patience = new AbortController();
    let again = 0;
    const dialAgain = (): RestoredGuest => {
      if (++again === 2) patience.abort("enough");
      return leaving;
    };
    const given = failureOf(restoreDuties(dialAgain, { reachTimeoutMs: 600_000, signal: patience.signal }));
    assert.deepEqual([(await given).status, (await given).cause], ["CANCELLED", "enough"]);
  });

  test("restoreDuties fails after `reachTimeoutMs` if no agent answers", async () => {
    const agent = await startStandIn({ service: GuestAgent });
    await agent[Symbol.asyncDispose]();
    await assert.rejects(
      restoreDuties(() => agent.redial(), { reachTimeoutMs: 300 }),
      (error) => error instanceof GuestError && ["DEADLINE_EXCEEDED", "UNAVAILABLE"].includes(error.status),
    );
  });
});
