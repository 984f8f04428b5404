import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { startAgent } from "../../fixtures/agent.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { relayTo } from "../../fixtures/relay.ts";

/** An agent that has begun to shut down, and waits for its workload, which ignores SIGTERM. */
async function leaving() {
  const script = "trap '' TERM; while :; do sleep 0.05; done";
  const agent = await startAgent({ process: { args: ["sh", "-c", script], stop_grace_ms: 3_000 } });
  return { agent, client: clientOf(agent) };
}

describe("error.retryable", () => {
  test("is true of a command that an agent refuses while it shuts down", async () => {
    const { agent, client } = await leaving();
    await using _ = agent;
    await client.stop();
    const { code, retryable } = await failureOf(client.run({ args: ["true"] }));
    assert.deepEqual([code, retryable], ["SHUTTING_DOWN", true]);
    client.close();
  });

  test("is false of a kept command whose agent shuts down while it runs", async () => {
    const { agent, client } = await leaving();
    await using _ = agent;
    const kept = client.exec({ args: ["sleep", "1000"], keep: { name: "kept" } });
    await kept.attached;
    const again = client.attach("kept");
    await again.attached;
    assert.equal((await failureOf(kept.wait())).retryable, false);
    const ended = again.wait().then(
      () => false,
      (error: unknown) => (error as { retryable: boolean }).retryable,
    );
    await client.stop();
    assert.equal(await ended, false);
    client.close();
  });

  test("is true of a call without a connection, and false of one whose connection is lost", async () => {
    await using agent = await startAgent();
    await using relay = await relayTo(agent.port);
    using client = clientOf({ ...agent, port: relay.port });
    const command = client.exec({ args: ["sleep", "1000"] });
    await command.started;
    const unanswered = failureOf(client.workloadOutput().attached);
    // Every new connection is refused, which is the cause that the link then knows.
    relay.cut();
    const lost = await failureOf(command.wait());
    assert.deepEqual([lost.status, lost.retryable], ["UNAVAILABLE", false]);
    await unanswered;
    const { status, retryable } = await failureOf(client.run({ args: ["true"] }));
    assert.deepEqual([status, retryable], ["UNAVAILABLE", true]);
    using nowhere = clientOf({ ...agent, port: 1 });
    const refused = await failureOf(nowhere.run({ args: ["true"] }));
    assert.deepEqual([refused.code, refused.retryable], ["CONNECTION_REFUSED", true]);
  });

  test("is false of what is wrong with the call itself, and of an abort", async () => {
    await using agent = await startAgent();
    using client = clientOf(agent);
    for (const fail of [
      () => client.run({ args: ["/no/such/command"] }),
      () => client.run({ args: ["true"] }, { signal: AbortSignal.abort() }),
      () => client.readFile("/no/such/file").text(),
    ])
      assert.equal((await failureOf(fail())).retryable, false);
  });
});
