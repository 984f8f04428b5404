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
const ENTRIES = 131_072;
const STRINGS_BYTES = 2 * 2 ** 20;
/** Counted for every string: its NUL and its pointer. */
const OVERHEAD_BYTES = 9;
const CLOSE = { case: "stdinClose", value: {} } as const;

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

/** A command that must be gone once its call has failed. If that does not fail, the timeout ends both. */
const SLEEP: StartInit = { args: ["sleep", MARK], stdin: true, timeoutMs: 60_000n };
const resize = (cols: number) => ({ case: "resize", value: { cols, rows: 24 } }) as const;
const signal = (number: number) => ({ case: "signal", value: { number } }) as const;

/** Entries that a start frame may not hold, and the error: it has the entry's name, and nothing of a value. */
const REFUSED_STARTS: readonly [StartInit, message: string | RegExp][] = [
  [{ args: [] }, "start.args must not be empty: it names the command to run"],
  [{ args: [""] }, "start.args[0] must not be empty: it names the command to run"],
  [{ args: ["echo", "a\0b"] }, "start.args[1] contains a NUL byte"],
  [{ args: ["true"], env: { "": "x" } }, 'start.env[""] has an empty name'],
  [{ args: ["true"], env: { "TOKEN=secret": "x" } }, "start.env[\"TOKEN\"] has a name that contains '='"],
  [{ args: ["true"], env: { "A\0": "x" } }, 'start.env["A\\u0000"] has a name that contains a NUL byte'],
  [{ args: ["true"], env: { A: "secret\0" } }, 'start.env["A"] contains a NUL byte'],
  [{ args: ["true"], env: { [`${"A".repeat(1_000_000)}=`]: "x" } }, /^.{1,199}$/],
  [{ args: ["true"], cwd: "tmp" }, "start.cwd must be an absolute path"],
  [{ args: ["true"], cwd: "/\0" }, "start.cwd contains a NUL byte"],
  [{ args: ["true"], terminal: { cols: 65_536, rows: 24 } }, /^start\.terminal is 65536x24: /],
  [{ args: ["true"], terminal: { term: "x\0" } }, "start.terminal.term contains a NUL byte"],
];

/** What clients may not do, by the reason of the error. */
const DEEDS: Readonly<Record<string, readonly (readonly [what: string, send: (stream: ExecStream) => unknown])[]>> = {
  FRAME_ORDER: [
    ["a first frame that is not start", (stream) => stream.stdin("x")],
    ["an empty first frame", (stream) => stream.sendBytes(new Uint8Array())],
    ["no frame at all", (stream) => stream.end()],
    ["two frames in one message", (stream) => stream.sendBytes(Buffer.concat([argument("true"), field(2, "typed")]))],
    ["input that it did not ask for", (stream) => stream.start({ ...SLEEP, stdin: false }).stdin("x")],
    ["a second start", (stream) => stream.start(SLEEP).start({ args: ["true"] })],
    ["input after stdin_close", (stream) => stream.start(SLEEP).send(CLOSE).stdin("x")],
    ["a second end of input", (stream) => stream.start(SLEEP).send(CLOSE).send(CLOSE)],
    ["a frame of the server alone", (stream) => stream.start(SLEEP).send({ case: "started", value: { pid: 1 } })],
    ["a resize without a terminal", (stream) => stream.start(SLEEP).send(resize(80))],
    ["an ack of a command that is not kept", (stream) => stream.start(SLEEP).send({ case: "ack", value: {} })],
    ["a forget of one that is not kept", (stream) => stream.start(SLEEP).send({ case: "forget", value: {} })],
  ],
  INVALID_FIELD: [
    ["signal 0", (stream) => stream.start(SLEEP).send(signal(0))],
    ["signal 65", (stream) => stream.start(SLEEP).send(signal(65))],
    ["signal 2^32 - 1", (stream) => stream.start(SLEEP).send(signal(2 ** 32 - 1))],
    ["a size that no terminal has", (stream) => stream.start({ ...SLEEP, terminal: {} }).send(resize(70_000))],
  ],
  MALFORMED_MESSAGE: [
    ["bytes that are not a message", (stream) => stream.sendBytes(Buffer.of(0xff, 0xff, 0xff))],
    ["such bytes while a command runs", (stream) => stream.start(SLEEP).sendBytes(Buffer.of(0x0a, 0x7f, 1))],
    ["millions of arguments where no start may come", (stream) => stream.start(SLEEP).sendBytes(startOf([0x0a, 0]))],
    ["an argument that is not UTF-8", (stream) => stream.sendBytes(argument(Buffer.of(0xff)))],
    ["a variable that is not UTF-8", (stream) => stream.sendBytes(field(1, variable("a", Buffer.of(0xc3))))],
    ["an argument that leads beyond the message", (stream) => stream.sendBytes(field(1, Buffer.of(0x0a, 9)))],
  ],
};

describe("a client that breaks the rules of Exec", () => {
  for (const [reason, deeds] of Object.entries(DEEDS))
    for (const [what, send] of deeds)
      it(`an Exec call with ${what} fails with ${reason}`, async () => {
        const failure = await failureOf(send);
        assert.deepEqual([failure.code, failure.reason], [status.INVALID_ARGUMENT, reason]);
        await noProcessWith(MARK);
      });

  it("an exec with an invalid start field fails with INVALID_FIELD, naming the field", async () => {
    for (const [start, message] of REFUSED_STARTS)
      await assert.rejects(exec(agent, start), { code: status.INVALID_ARGUMENT, reason: "INVALID_FIELD", message });
  });

  it("an oversized exec message fails with MESSAGE_TOO_LARGE before and after the command's start", async () => {
    for (const send of [
      (stream: ExecStream) => stream.start({ args: ["echo", "x".repeat(10 * 2 ** 20)] }),
      (stream: ExecStream) => stream.start(SLEEP).stdin(Buffer.alloc(5 * 2 ** 20)),
    ]) {
      const failure = await failureOf(send);
      assert.deepEqual([failure.code, failure.reason], [status.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE"]);
      await noProcessWith(MARK);
    }
  });
});

/** That many arguments, the command included. */
function args(count: number): string[] {
  return ["true", ...Array<string>(count - 1).fill("")];
}

async function assertTooLong(start: StartInit, limit: number): Promise<void> {
  const { code, reason, metadata } = await failingExec(agent, start);
  const expected = [status.RESOURCE_EXHAUSTED, "EXEC_ARGS_TOO_LONG", String(limit)];
  assert.deepEqual([code, reason, metadata["limit"]], expected);
}

/** A frame { start: … } whose content repeats one field of two bytes, two million times. */
function startOf(pair: readonly [number, number]): Uint8Array {
  const content = Buffer.alloc(2 * 2_000_000, Uint8Array.from(pair));
  const head = toBinary(ExecFrameSchema, create(ExecFrameSchema, { frame: { case: "stdin", value: content } }));
  head[0] = 0x0a;
  return head;
}

describe("the arguments and variables of one Exec", () => {
  it("an exec accepts at most 131,072 arguments and variables together", async () => {
    assert.equal((await exec(agent, { args: args(ENTRIES) })).exit.code, 0);
    await assertTooLong({ args: args(ENTRIES + 1) }, ENTRIES);
    const env = Object.fromEntries(Array.from({ length: ENTRIES / 2 }, (_, index) => [`v${index.toString(36)}`, ""]));
    assert.equal((await exec(agent, { args: args(ENTRIES / 2), env })).exit.code, 0);
    await assertTooLong({ args: args(ENTRIES / 2 + 1), env }, ENTRIES);
  });

  it("an exec's arguments and variables may take at most 2 MiB", async () => {
    const strings = Array<string>(32).fill("x".repeat(2 ** 16 - OVERHEAD_BYTES));
    await assertTooLong({ args: ["true", ...strings] }, STRINGS_BYTES);
    // The kernel may refuse what the agent's bound allows, because the inherited environment counts too.
    assert.equal((await exec(agent, { args: ["true", ...strings.slice(1)] })).exit.code, 0);
    await assertTooLong({ args: ["true"], env: { A: "x".repeat(STRINGS_BYTES) } }, STRINGS_BYTES);
  });

  it("two million empty arguments are rejected before they use memory", async () => {
    const ownBefore = memoryOf(agent.pid).ownBytes;
    for (const pair of [
      [0x0a, 0],
      [0x12, 0],
    ] as const)
      assert.equal((await failureOf((stream) => stream.sendBytes(startOf(pair)))).reason, "EXEC_ARGS_TOO_LONG");
    const grownBytes = memoryOf(agent.pid).ownBytes - ownBefore;
    assert.ok(grownBytes < 64 * 2 ** 20, `grew by ${grownBytes} bytes`);
  });

  it("non-ASCII, repeated and __proto__ variables reach the command unchanged", async () => {
    // No shell: it would drop variables whose names it cannot use.
    const start = Buffer.concat([
      ...["env", "später=\u{1f600}", "cat", "/proc/self/environ"].map((text) => field(1, text)),
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

  it("an exec with a long command name and PATH fails with EXEC_ARGS_TOO_LONG", async () => {
    const failure = await failingExec(agent, { args: ["x".repeat(100_000)], env: { PATH: ":".repeat(100_000) } });
    assert.deepEqual([failure.code, failure.reason], [status.RESOURCE_EXHAUSTED, "EXEC_ARGS_TOO_LONG"]);
  });
});

function field(number: number, content: string | Uint8Array): Buffer {
  const bytes = Buffer.from(content as string);
  assert.ok(bytes.length < 2 ** 14);
  const length = bytes.length < 128 ? [bytes.length] : [(bytes.length & 0x7f) | 0x80, bytes.length >>> 7];
  return Buffer.concat([Uint8Array.of(number * 8 + 2, ...length), bytes]);
}

/** A frame { start: … } of one argument. */
function argument(content: string | Uint8Array): Buffer {
  return field(1, field(1, content));
}

function variable(name: string, value: string | Uint8Array): Buffer {
  return field(2, Buffer.concat([field(1, name), field(2, value)]));
}
