import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { exec, ExecStream, failingExec } from "../../fixtures/exec-stream.ts";
import { noProcessWith } from "../../fixtures/processes.ts";
import type { RpcFailure } from "../../fixtures/rpc-clients.ts";

/** By this only this run's processes are found. */
const MARK = `4242${process.pid}.125`;

const agent = forAllTests(await startAgent());
afterEach(async () => {
  assert.equal((await exec(agent, { args: ["true"] })).exit.code, 0, "the agent must go on serving");
});

/** Sends frames and expects the call to fail. */
async function failureOf(send: (stream: ExecStream) => unknown): Promise<RpcFailure> {
  using stream = new ExecStream(agent);
  send(stream);
  return await stream.failure();
}

/** The same while a command runs, which must be gone afterwards. */
async function failureWhileRunning(send: (stream: ExecStream) => unknown, terminal = false): Promise<RpcFailure> {
  const failure = await failureOf((stream) => {
    stream.start({ args: ["sleep", MARK], stdin: true, ...(terminal && { terminal: {} }) });
    send(stream);
  });
  await noProcessWith(MARK);
  return failure;
}

function assertRefused(failure: RpcFailure, reason: string): void {
  assert.deepEqual([failure.code, failure.reason], [status.INVALID_ARGUMENT, reason]);
}

describe("a client that breaks the rules of Exec", () => {
  it("by a first frame that is not start", async () => {
    assertRefused(await failureOf((stream) => stream.stdin("x")), "FRAME_ORDER");
  });

  it("by an empty first frame", async () => {
    assertRefused(await failureOf((stream) => stream.sendBytes(new Uint8Array())), "FRAME_ORDER");
  });

  it("by no frame at all", async () => {
    assertRefused(await failureOf((stream) => stream.end()), "FRAME_ORDER");
  });

  it("by a second start", async () => {
    assertRefused(await failureWhileRunning((stream) => stream.start({ args: ["true"] })), "FRAME_ORDER");
  });

  it("by stdin after stdin_close", async () => {
    assertRefused(
      await failureWhileRunning((stream) => stream.send({ case: "stdinClose", value: {} }).stdin("x")),
      "FRAME_ORDER",
    );
  });

  it("by a frame that only the server sends", async () => {
    assertRefused(
      await failureWhileRunning((stream) => stream.send({ case: "started", value: { pid: 1 } })),
      "FRAME_ORDER",
    );
  });

  it("by empty args", async () => {
    assertRefused(await failingExec(agent, { args: [] }), "INVALID_FIELD");
  });

  it("by NUL bytes in an argument, a variable or the working directory", async () => {
    assertRefused(await failingExec(agent, { args: ["echo", "a\0b"] }), "INVALID_FIELD");
    assertRefused(await failingExec(agent, { args: ["true"], env: { A: "\0" } }), "INVALID_FIELD");
    assertRefused(await failingExec(agent, { args: ["true"], cwd: "/\0" }), "INVALID_FIELD");
  });

  it("by signal 0 or 65", async () => {
    for (const number of [0, 65, 2 ** 32 - 1]) {
      assertRefused(
        await failureWhileRunning((stream) => stream.send({ case: "signal", value: { number } })),
        "INVALID_FIELD",
      );
    }
  });

  it("by a terminal of more than a terminal can have while it runs", async () => {
    const size = { cols: 70_000, rows: 24 };
    assertRefused(
      await failureWhileRunning((stream) => stream.send({ case: "resize", value: size }), true),
      "INVALID_FIELD",
    );
  });

  it("by a resize without a terminal", async () => {
    assertRefused(
      await failureWhileRunning((stream) => stream.send({ case: "resize", value: { cols: 80, rows: 24 } })),
      "FRAME_ORDER",
    );
  });

  it("by an argument of 10 MiB: over the message limit, and not read to its end", async () => {
    const failure = await failingExec(agent, { args: ["echo", "x".repeat(10 * 2 ** 20)] });
    assert.deepEqual([failure.code, failure.reason], [status.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE"]);
  });

  it("by a message over the limit while a command runs", async () => {
    const failure = await failureWhileRunning((stream) => stream.stdin(Buffer.alloc(5 * 2 ** 20)));
    assert.deepEqual([failure.code, failure.reason], [status.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE"]);
  });

  it("by bytes that are no protobuf message", async () => {
    assertRefused(await failureOf((stream) => stream.sendBytes(Buffer.from([0xff, 0xff, 0xff]))), "MALFORMED_MESSAGE");
    assertRefused(
      await failureWhileRunning((stream) => stream.sendBytes(Buffer.from([0x0a, 0x7f, 1]))),
      "MALFORMED_MESSAGE",
    );
  });

  it("by text that is not UTF-8", async () => {
    // start { args: <ff fe> }
    assertRefused(
      await failureOf((s) => s.sendBytes(Buffer.from([0x0a, 4, 0x0a, 2, 0xff, 0xfe]))),
      "MALFORMED_MESSAGE",
    );
  });
});
