import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { exec, ExecStream, failingExec, type StartInit } from "../../fixtures/exec-stream.ts";
import { noProcessWith } from "../../fixtures/processes.ts";
import type { RpcFailure } from "../../fixtures/rpc-clients.ts";

/** Finds this run's processes alone. */
const MARK = `4242${process.pid}.125`;

const agent = forAllTests(await startAgent());
afterEach(async () => {
  assert.equal((await exec(agent, { args: ["true"] })).exit.code, 0, "the agent must go on serving");
});

type Deed = readonly [what: string, send: (stream: ExecStream) => unknown];

/** Sends frames and expects the call to fail. */
async function failureOf(send: (stream: ExecStream) => unknown): Promise<RpcFailure> {
  using stream = new ExecStream(agent);
  send(stream);
  return await stream.failure();
}

/** Ends a command that runs although its call should have failed: the test then fails without waiting for its limit. */
const KILL = { case: "signal", value: { number: 9 } } as const;

/** The same while a command runs, which must be gone afterwards. */
async function failureWhileRunning(send: (stream: ExecStream) => unknown, terminal = false): Promise<RpcFailure> {
  const failure = await failureOf((stream) => {
    stream.start({ args: ["sleep", MARK], stdin: true, ...(terminal && { terminal: {} }) });
    send(stream);
    stream.send(KILL);
  });
  await noProcessWith(MARK);
  return failure;
}

function assertRefused(failure: RpcFailure, reason: string): void {
  assert.deepEqual([failure.code, failure.reason], [status.INVALID_ARGUMENT, reason]);
}

/** Entries that a start frame may not hold, and the error: it has the entry's name, and nothing of a value. */
const REFUSED_STARTS: readonly [StartInit, message: string | RegExp][] = [
  [{ args: [] }, "start.args is empty: name the command to run"],
  [{ args: [""] }, "start.args[0] is empty: name the command to run"],
  [{ args: ["echo", "a\0b"] }, "start.args[1] holds a NUL byte"],
  [{ args: ["true"], env: { "": "x" } }, 'start.env[""] has an empty name'],
  [{ args: ["true"], env: { "TOKEN=secret": "x" } }, "start.env[\"TOKEN\"] has a name that holds '='"],
  [{ args: ["true"], env: { "A\0": "x" } }, 'start.env["A\\u0000"] has a name that holds a NUL byte'],
  [{ args: ["true"], env: { A: "secret\0" } }, 'start.env["A"] holds a NUL byte'],
  [{ args: ["true"], env: { [`${"A".repeat(1_000_000)}=`]: "x" } }, /^.{1,199}$/],
  [{ args: ["true"], cwd: "tmp" }, "start.cwd is not an absolute path"],
  [{ args: ["true"], cwd: "/\0" }, "start.cwd holds a NUL byte"],
  [{ args: ["true"], terminal: { cols: 65_536, rows: 24 } }, /^start\.terminal is 65536x24: /],
  [{ args: ["true"], terminal: { term: "x\0" } }, "start.terminal.term holds a NUL byte"],
];

describe("a client that breaks the rules of Exec", () => {
  for (const [what, send] of [
    ["a first frame that is not start", (stream) => stream.stdin("x")],
    ["an empty first frame", (stream) => stream.sendBytes(new Uint8Array())],
    ["no frame at all", (stream) => stream.end()],
    [
      "input that it did not ask for",
      (stream) =>
        stream
          .start({ args: ["sleep", MARK] })
          .stdin("x")
          .send(KILL),
    ],
  ] as const satisfies readonly Deed[]) {
    it(`by ${what}`, async () => {
      assertRefused(await failureOf(send), "FRAME_ORDER");
      await noProcessWith(MARK);
    });
  }

  const CLOSE = { case: "stdinClose", value: {} } as const;
  for (const [what, send] of [
    ["a second start", (stream) => stream.start({ args: ["true"] })],
    ["input after stdin_close", (stream) => stream.send(CLOSE).stdin("x")],
    ["a second end of input", (stream) => stream.send(CLOSE).send(CLOSE)],
    ["a frame that only the server sends", (stream) => stream.send({ case: "started", value: { pid: 1 } })],
    ["a resize without a terminal", (stream) => stream.send({ case: "resize", value: { cols: 80, rows: 24 } })],
  ] as const satisfies readonly Deed[]) {
    it(`by ${what}`, async () => assertRefused(await failureWhileRunning(send), "FRAME_ORDER"));
  }

  it("by what a start frame may not hold, whose name it is told", async () => {
    for (const [start, message] of REFUSED_STARTS) {
      const failure = await failingExec(agent, start);
      assertRefused(failure, "INVALID_FIELD");
      if (typeof message === "string") assert.equal(failure.message, message);
      else assert.match(failure.message, message);
    }
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
});
