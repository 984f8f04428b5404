import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempDisposable } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { connect } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import {
  CODE,
  FRAME,
  frame,
  frameReader,
  INITIAL_WINDOW_SIZE,
  PREFACE,
  setting,
  uint32,
} from "../../fixtures/raw-http2.ts";
import { relayTo } from "../../fixtures/relay.ts";

/** An agent that has begun to shut down, and waits for its workload, which ignores SIGTERM. */
async function leaving() {
  const script = "trap '' TERM; while :; do sleep 0.05; done";
  const agent = await startAgent({ process: { args: ["sh", "-c", script], stop_grace_ms: 3_000 } });
  return { agent, client: clientOf(agent) };
}

/**
 * Serves HTTP/2 over a unix socket, and answers each request with one frame. A client with a window of 0 for its
 * streams cannot have sent its message yet (RFC 9113, 6.5.2).
 */
async function serveFrame(
  path: string,
  windowBytes: number,
  answer: (stream: number) => Buffer,
): Promise<AsyncDisposable> {
  const server = createServer((socket) => {
    socket.write(frame(FRAME.settings, 0, 0, setting(INITIAL_WINDOW_SIZE, windowBytes)));
    socket.on("error", () => {});
    const takeFrame = (whole: Buffer, type: number): void => {
      if (type === FRAME.headers) socket.write(answer(whole.readUInt32BE(5)));
    };
    socket.on("data", frameReader(takeFrame, PREFACE.length));
  });
  server.listen(path);
  await once(server, "listening");
  return server;
}

describe("error.retryable", () => {
  test("a command that the agent refused during its shutdown is retryable", async () => {
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

  test("a call that got no connection is retryable, one whose connection broke is not", async () => {
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

  // A GOAWAY whose last stream is 0, as of an agent at its limits: such streams were not processed (RFC 9113, 6.8).
  const goaway = (): Buffer => frame(FRAME.goaway, 0, 0, uint32(0, CODE.none));
  // Nor was such a stream (RFC 9113, 8.7).
  const refusal = (stream: number): Buffer => frame(FRAME.reset, 0, stream, uint32(CODE.refusedStream));
  for (const [what, windowBytes, answer] of [
    ["that the agent's GOAWAY did not accept", 0, goaway],
    ["whose stream was refused", 65_535, refusal],
    ["whose stream was refused before its message was sent", 0, refusal],
  ] as const)
    test(`a call ${what} is retryable`, async () => {
      await using scratch = await mkdtempDisposable(join(tmpdir(), "guest-agent-refused-"));
      const address = join(scratch.path, "agent.sock");
      await using _server = await serveFrame(address, windowBytes, answer);
      using client = connect({ address: `unix:${address}`, token: "token" });
      const { status, code, retryable, message } = await failureOf(client.run(["true"]));
      assert.deepEqual([status, code, retryable], ["UNAVAILABLE", "CONNECTION_CLOSED", true]);
      assert.match(message, /^the agent closed the connection before it accepted the call/);
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
