import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { ExecFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { exec, ExecStream, failingExec, type StartInit } from "../../fixtures/exec-stream.ts";
import { noProcessWith } from "../../fixtures/processes.ts";
import { memoryOf } from "../../fixtures/footprint.ts";

const ENTRIES = 131_072;
const STRINGS_BYTES = 2 * 2 ** 20;
/** Counted for every string: its NUL and its pointer. */
const OVERHEAD_BYTES = 9;
const TWO_MILLION = 2_000_000;

const agent = forAllTests(await startAgent());

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
      const failure = await stream.sendBytes(startOf(pair, TWO_MILLION)).failure();
      assert.equal(failure.reason, "EXEC_ARGS_TOO_LONG");
    }
    const grownBytes = memoryOf(agent.pid).ownBytes - ownBefore;
    assert.ok(grownBytes < 64 * 2 ** 20, `grew by ${grownBytes} bytes`);
  });

  it("are not looked at in a frame where no start may come", async () => {
    const mark = "424242.126";
    using stream = new ExecStream(agent);
    stream.start({ args: ["sleep", mark], stdin: true }).sendBytes(startOf([0x0a, 0], TWO_MILLION));
    const failure = await stream.failure();
    assert.deepEqual([failure.code, failure.reason], [status.INVALID_ARGUMENT, "MALFORMED_MESSAGE"]);
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
