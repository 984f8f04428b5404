import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { HookKind } from "../../../src/node/client/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type Answer, type StandIn, startStandIn } from "../../fixtures/stand-in-agent.ts";
import { failureOf } from "../../fixtures/guest-client.ts";

/** Answers Health and StatPath only the nth time; breaks the connection before that, and at every other call. */
async function breaking(answersAt: number): Promise<StandIn> {
  const counts = new Map<string, number>();
  const answer =
    (name: string): Answer =>
    () => {
      const count = (counts.get(name) ?? 0) + 1;
      counts.set(name, count);
      if (count >= answersAt) return name === "Health" ? { alive: true } : { size: 5n };
      standIn.drop();
      return new Promise(() => {});
    };
  const broken: Answer = () => {
    standIn.drop();
    return new Promise(() => {});
  };
  const answers = { Health: answer("Health"), StatPath: answer("StatPath"), RunHook: broken, RunRestoreDuties: broken };
  const standIn = await startStandIn({ service: GuestAgent, answers });
  return standIn;
}

describe("retries", () => {
  test("ask Health and StatPath again when the connection breaks before the answer", async () => {
    await using standIn = await breaking(3);
    assert.equal((await standIn.client.health()).alive, true);
    assert.equal((await standIn.client.statPath("/x")).size, 5);
    assert.deepEqual(standIn.calls, ["Health", "Health", "Health", "StatPath", "StatPath", "StatPath"]);
  });

  test("end after three attempts", async () => {
    await using standIn = await breaking(4);
    assert.equal((await failureOf(standIn.client.health())).status, "UNAVAILABLE");
    assert.equal(standIn.calls.length, 3);
  });

  test("end with the call's deadline", async () => {
    await using standIn = await breaking(4);
    const error = await failureOf(standIn.client.health({ timeoutMs: 40 }));
    assert.ok(["UNAVAILABLE", "DEADLINE_EXCEEDED"].includes(error.status), error.status);
    assert.ok(standIn.calls.length <= 1, standIn.calls.join());
  });

  test("end when the signal is aborted between two attempts", async () => {
    await using standIn = await breaking(4);
    const controller = new AbortController();
    const failure = failureOf(standIn.client.health({ signal: controller.signal }));
    await standIn.called("Health", 2);
    controller.abort("enough");
    const error = await failure;
    assert.deepEqual([error.status, error.cause], ["CANCELLED", "enough"]);
    assert.ok(standIn.calls.length <= 3);
  });

  test("are never made of what acts: hooks, duties, commands, writes and reads are called once", async () => {
    await using standIn = await breaking(1);
    const { client } = standIn;
    for (const act of [
      () => client.runHook({ kind: HookKind.PRE_SNAPSHOT }),
      () => client.runRestoreDuties({ entropy: new Uint8Array(32) }),
    ]) {
      assert.equal((await failureOf(act())).status, "UNAVAILABLE");
    }
    for (const [method, act] of [
      ["Exec", () => client.run({ args: ["true"] })],
      ["WriteFile", () => client.writeFile("/x", Buffer.from("x"))],
      ["ReadFile", () => client.readFile("/x")[Symbol.asyncIterator]().next()],
    ] as const) {
      const failure = failureOf(act());
      await standIn.called(method);
      standIn.drop();
      assert.equal((await failure).status, "UNAVAILABLE");
    }
    // A later call on the same connection: once it is answered, any further attempt would have come.
    assert.equal((await client.health({ waitForReady: true, timeoutMs: 30_000 })).alive, true);
    const acts = standIn.calls.filter((name) => name !== "Health");
    assert.deepEqual(acts, ["RunHook", "RunRestoreDuties", "Exec", "WriteFile", "ReadFile"]);
  });
});
