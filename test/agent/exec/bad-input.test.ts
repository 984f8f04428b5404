import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { ExecFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { exec, ExecStream, failingExec, type StartInit } from "../../fixtures/exec-stream.ts";
import { memoryOf, noProcessWith } from "../../fixtures/proc.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
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

const ENTRIES = 131_072;
const STRINGS_BYTES = 2 * 2 ** 20;
/** Counted for every string: its NUL and its pointer. */
const OVERHEAD_BYTES = 9;
const TWO_MILLION = 2_000_000;

/** That many arguments, the command included. */
function args(count: number): string[] {
  return ["true", ...Array<string>(count - 1).fill("")];
}

async function assertTooLong(start: StartInit, limit: number): Promise<void> {
  const failure = await failingExec(agent, start);
  assert.deepEqual([failure.code, failure.reason], [status.RESOURCE_EXHAUSTED, "EXEC_ARGS_TOO_LONG"]);
  assert.equal(failure.metadata["limit"], String(limit));
}

/** A frame { start: … } whose content repeats one field of two bytes. */
function startOf(pair: readonly [number, number], count: number): Uint8Array {
  const content = Buffer.alloc(2 * count, Uint8Array.from(pair));
  const head = toBinary(ExecFrameSchema, create(ExecFrameSchema, { frame: { case: "stdin", value: content } }));
  head[0] = 0x0a;
  return head;
}

describe("the arguments and variables of one Exec", () => {
  it("may be 131,072 together, and no more", async () => {
    assert.equal((await exec(agent, { args: args(ENTRIES) })).exit.code, 0);
    await assertTooLong({ args: args(ENTRIES + 1) }, ENTRIES);
    const env = Object.fromEntries(Array.from({ length: ENTRIES / 2 }, (_, index) => [`v${index.toString(36)}`, ""]));
    assert.equal((await exec(agent, { args: args(ENTRIES / 2), env })).exit.code, 0);
    await assertTooLong({ args: args(ENTRIES / 2 + 1), env }, ENTRIES);
  });

  it("may take 2 MiB with their NULs and pointers, and no more", async () => {
    const strings = Array<string>(32).fill("x".repeat(2 ** 16 - OVERHEAD_BYTES));
    await assertTooLong({ args: ["true", ...strings] }, STRINGS_BYTES);
    // The kernel may refuse what the agent's bound allows, because the inherited environment counts too.
    assert.equal((await exec(agent, { args: ["true", ...strings.slice(1)] })).exit.code, 0);
    await assertTooLong({ args: ["true"], env: { A: "x".repeat(STRINGS_BYTES) } }, STRINGS_BYTES);
  });

  it("are counted before they are made: two million empty ones take no memory", async () => {
    const ownBefore = memoryOf(agent.pid).ownBytes;
    for (const pair of [
      [0x0a, 0],
      [0x12, 0],
    ] as const) {
      using stream = new ExecStream(agent);
      assert.equal((await stream.sendBytes(startOf(pair, TWO_MILLION)).failure()).reason, "EXEC_ARGS_TOO_LONG");
    }
    const grownBytes = memoryOf(agent.pid).ownBytes - ownBefore;
    assert.ok(grownBytes < 64 * 2 ** 20, `grew by ${grownBytes} bytes`);
  });

  it("are not looked at in a frame where no start may come", async () => {
    const mark = "424242.126";
    using stream = new ExecStream(agent);
    stream.start({ args: ["sleep", mark], stdin: true }).sendBytes(startOf([0x0a, 0], TWO_MILLION));
    await assert.rejects(stream.outcome(), { code: status.INVALID_ARGUMENT, reason: "MALFORMED_MESSAGE" });
    await noProcessWith(mark);
  });

  it("arrive as they are: not ASCII, named twice, or named __proto__", async () => {
    // No shell: it would drop variables whose names it cannot use.
    const start = Buffer.concat([
      ...["env", "später=\u{1f600}", "cat", "/proc/self/environ"].map((text) => field(1, Buffer.from(text))),
      variable("twice", "1"),
      variable("__proto__", "x"),
      variable("ü", "größer"),
      variable("twice", "2"),
    ]);
    using stream = new ExecStream(agent);
    const { stdout } = await stream.sendBytes(field(1, start)).end().outcome();
    const expected = ["__proto__=x", "später=\u{1f600}", "twice=2", "ü=größer"];
    const arrived = stdout.toString().split("\0");
    assert.deepEqual(
      expected.filter((entry) => arrived.includes(entry)),
      expected,
    );
    assert.ok(!arrived.includes("twice=1"));
  });

  it("are refused where they are not UTF-8, or where a length leads beyond the message", async () => {
    for (const content of [field(1, Buffer.from([0xff])), variable("a", Buffer.from([0xc3])), Buffer.from([0x0a, 9])]) {
      using stream = new ExecStream(agent);
      const failure = await stream.sendBytes(field(1, content)).failure();
      assert.deepEqual([failure.code, failure.reason], [status.INVALID_ARGUMENT, "MALFORMED_MESSAGE"]);
    }
  });

  it("are refused beside another frame in the same message", async () => {
    using stream = new ExecStream(agent);
    const both = Buffer.concat([field(1, field(1, Buffer.from("true"))), field(2, Buffer.from("typed"))]);
    assert.equal((await stream.sendBytes(both).failure()).reason, "FRAME_ORDER");
  });

  it("do not make a long PATH longer than they are: a long name in each of its folders", async () => {
    const failure = await failingExec(agent, { args: ["x".repeat(100_000)], env: { PATH: ":".repeat(100_000) } });
    assert.deepEqual([failure.code, failure.reason], [status.RESOURCE_EXHAUSTED, "EXEC_ARGS_TOO_LONG"]);
  });
});

function field(number: number, content: Uint8Array): Buffer {
  assert.ok(content.length < 2 ** 14);
  const length = content.length < 128 ? [content.length] : [(content.length & 0x7f) | 0x80, content.length >>> 7];
  return Buffer.concat([Uint8Array.of(number * 8 + 2, ...length), content]);
}

function variable(name: string, value: string | Uint8Array): Buffer {
  return field(2, Buffer.concat([field(1, Buffer.from(name)), field(2, Buffer.from(value as string))]));
}
