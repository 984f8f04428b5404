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
  test("a command refused during shutdown is retryable", async () => {
    const { agent, client } = await leaving();
    await using _ = agent;
    await client.stop();
    const { code, retryable } = await failureOf(client.run(["true"]));
    assert.deepEqual([code, retryable], ["SHUTTING_DOWN", true]);
    client.close();
  });

  test("a kept command interrupted by shutdown is not retryable", async () => {
    const { agent, client } = await leaving();
    await using _ = agent;
    const kept = client.start(["sleep", "1000"], { keep: { name: "kept" } });
    await kept.attached;
    const again = client.commands.attach("kept");
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

  test("a call without a connection is retryable, an interrupted one is not", async () => {
    await using agent = await startAgent();
    await using relay = await relayTo(agent.port);
    using client = clientOf({ ...agent, port: relay.port });
    const command = client.start(["sleep", "1000"]);
    await command.started;
    const unanswered = failureOf(client.commands.workloadOutput().attached);
    // Every new connection is refused, which is the cause that the link then knows.
    relay.cut();
    const lost = await failureOf(command.wait());
    assert.deepEqual([lost.status, lost.retryable], ["UNAVAILABLE", false]);
    await unanswered;
    const { status, retryable } = await failureOf(client.run(["true"]));
    assert.deepEqual([status, retryable], ["UNAVAILABLE", true]);
    using nowhere = clientOf({ ...agent, port: 1 });
    const refused = await failureOf(nowhere.run(["true"]));
    assert.deepEqual([refused.code, refused.retryable], ["CONNECTION_REFUSED", true]);
  });

  test("an invalid or aborted call is not retryable", async () => {
    await using agent = await startAgent();
    using client = clientOf(agent);
    for (const fail of [
      () => client.run(["/no/such/command"]),
      () => client.run(["true"], { signal: AbortSignal.abort() }),
      () => client.files.readFile("/no/such/file", "utf8"),
    ])
      assert.equal((await failureOf(fail())).retryable, false);
  });
});
