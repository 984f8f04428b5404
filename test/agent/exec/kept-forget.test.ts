import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { KEPT_BUFFER_LIMIT_BYTES } from "../../../src/agent/domain/index.ts";
import { ExecFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { connect, ExecStream, failingExec } from "../../fixtures/exec-stream.ts";
import {
  attach,
  endAll,
  endExec,
  keep,
  keptCommand,
  listExecs,
  receiveAll,
  untilKept,
} from "../../fixtures/kept-commands.ts";
import { processGone } from "../../fixtures/proc.ts";
import { FRAME, frame as rawFrame, RawHttp2, uint32 } from "../../fixtures/raw-http2.ts";

const FROM_START = { stdoutOffset: 0n, stderrOffset: 0n };
const FORGET = { case: "forget", value: {} } as const;
/** More than a grpc-js client takes without a reader. */
const UNREAD_BYTES = 4 * 2 ** 20;
/** Less than a message of output. */
const WINDOW_BYTES = 65_535;

const agent = forAllTests(await startAgent());
afterEach(() => endAll(agent));

describe("forget", () => {
  it("a `forget` frame makes the agent forget an ended command", async () => {
    const client = connect(agent);
    for (let round = 0; round < 20; round++) {
      const name = `ended${round}`;
      const first = await keep(agent, { args: ["true"], keep: { name } }, client);
      await receiveAll(first);
      const stream = new ExecStream(agent, client).send({ case: "attach", value: { name, ...FROM_START } });
      if (round % 2 === 0) stream.send(FORGET);
      while ((await stream.next())?.case !== "exit");
      if (round % 2 === 1) stream.send(FORGET);
      assert.equal(await stream.next(), undefined);
      assert.equal(await keptCommand(agent, name), undefined);
    }
    client.close();
  });

  it("a `forget` frame sent shortly before or after the command's end takes effect", async () => {
    const client = connect(agent);
    for (let round = 0; round < 40; round++) {
      const { stream } = await keep(agent, { args: ["cat"], stdin: true, keep: { name: "meets" } }, client);
      stream.send({ case: "stdinClose", value: {} });
      // The second after the exit must not pass meanwhile, however busy the machine is.
      for (let turn = 0; turn < 200 * (round % 8); turn++) await new Promise((resolve) => setImmediate(resolve));
      stream.send(FORGET);
      for (let frame = await stream.next(); frame !== undefined; frame = await stream.next());
      await untilKept(agent, "meets", (exec) => exec === undefined);
    }
    client.close();
  });

  it("after the exit frame, a kept command's call ends even without `forget`", async () => {
    using silent = await keep(agent, { args: ["true"], keep: { name: "silent" } });
    while ((await silent.stream.next())?.case !== "exit");
    assert.equal((await keptCommand(agent, "silent"))?.attached, false);
    assert.equal(await silent.stream.next(), undefined);
    assert.notEqual(await keptCommand(agent, "silent"), undefined);
    using other = await attach(agent, { name: "silent", ...FROM_START });
    await receiveAll(other);
  });
});

describe("EndExec with forget", () => {
  it("EndExec with `forget` ends the process tree and frees the name", async () => {
    const line = "trap 'exit 3' TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.05; done";
    for (let round = 0; round < 3; round++) {
      const first = await keep(agent, { args: ["sh", "-c", line], keep: { name: "again" } });
      const child = Number(await first.stream.until("\n"));
      first[Symbol.dispose]();
      const { exit, forgotten } = await endExec(agent, { name: "again", forget: true });
      assert.deepEqual([exit?.code, forgotten], [3, true]);
      await processGone(child);
      assert.deepEqual(await listExecs(agent), []);
    }
    const ended = await keep(agent, { args: ["true"], keep: { name: "ended" } });
    await ended.stream.outcome();
    assert.partialDeepStrictEqual(await endExec(agent, { name: "ended", forget: true }), { forgotten: true });
  });

  it("an attached call still receives the exit frame after EndExec with `forget`", async () => {
    using first = await keep(agent, { args: ["sh", "-c", "echo out; exec sleep 1000"], keep: { name: "read" } });
    await untilKept(agent, "read", (exec) => exec?.stdoutOffset === 4n);
    assert.equal((await endExec(agent, { name: "read", forget: true })).forgotten, true);
    using second = await keep(agent, { args: ["sleep", "1000"], keep: { name: "read" } });
    const { exit } = await receiveAll(first);
    assert.ok(exit?.case === "exit");
    assert.equal(exit.value.signal, 15);
    assert.equal((await keptCommand(agent, "read"))?.execId, second.started.execId);
  });
});

describe("an exec that is to be replaced", () => {
  it("`replaceEnded` keeps the old exec if the new command cannot start", async () => {
    const first = await keep(agent, { args: ["echo", "result"], keep: { name: "old" } });
    await first.stream.outcome();
    const cases = [
      [{ args: ["no-such-command"] }, "EXEC_NOT_FOUND"],
      [{ args: ["true"], user: "nobody-knows" }, "EXEC_BAD_USER"],
      [{ args: ["true"], cwd: "/no/such/directory" }, "EXEC_BAD_CWD"],
      [{ args: ["/etc"] }, "EXEC_PERMISSION_DENIED"],
    ] as const;
    for (const [start, reason] of cases) {
      const failure = await failingExec(agent, {
        ...start,
        args: [...start.args],
        keep: { name: "old", replaceEnded: true },
      });
      assert.equal(failure.reason, reason);
      using again = await attach(agent, { name: "old", execId: first.started.execId, ...FROM_START });
      assert.equal((await receiveAll(again)).text(), "result\n");
    }
    assert.equal((await listExecs(agent)).length, 1);
  });

  it("after an exec is replaced, its attached client still reads all output", async () => {
    const args = ["head", "-c", String(UNREAD_BYTES), "/dev/zero"];
    const keeping = { name: "old", bufferBytes: UNREAD_BYTES };
    using first = await keep(agent, { args, keep: keeping });
    await untilKept(agent, "old", (exec) => exec?.exit !== undefined);
    using second = await keep(agent, { args: ["sleep", "1000"], keep: { name: "old", replaceEnded: true } });
    assert.deepEqual(
      (await listExecs(agent)).map(({ execId }) => execId),
      [second.started.execId],
    );
    const { stdout, exit } = await receiveAll(first);
    assert.deepEqual([stdout.end, stdout.gapBytes, exit?.case], [UNREAD_BYTES, 0, "exit"]);
  });

  it("when a replaced command is evicted, its attached client gets EXEC_UNKNOWN", async () => {
    const args = ["head", "-c", String(UNREAD_BYTES), "/dev/zero"];
    const large = { bufferBytes: KEPT_BUFFER_LIMIT_BYTES };
    using first = await keep(agent, { args, keep: { name: "a", ...large } });
    await untilKept(agent, "a", (exec) => exec?.exit !== undefined);
    using _ = await keep(agent, { args: ["true"], keep: { name: "a", bufferBytes: 1, replaceEnded: true } });
    using __ = await keep(agent, { args: ["true"], keep: { name: "b", ...large } });
    await assert.rejects(first.stream.outcome(), { code: status.NOT_FOUND, reason: "EXEC_UNKNOWN" });
  });
});

describe("a call whose client does not read its answers", () => {
  const args = ["head", "-c", String(UNREAD_BYTES), "/dev/zero"];
  const keeping = { name: "unread", bufferBytes: UNREAD_BYTES };

  /** A call that has received all but the last bytes of its first message, and opens no window for more. */
  async function unread(): Promise<{ readonly client: RawHttp2; readonly stream: number }> {
    const client = await RawHttp2.dial(agent, { windowBytes: WINDOW_BYTES });
    const frame = { case: "start", value: { args, keep: keeping } } as const;
    const stream = client.call(
      "Exec",
      agent.token,
      toBinary(ExecFrameSchema, create(ExecFrameSchema, { frame })),
      false,
    );
    // Of a DATA frame only its head and its first bytes are kept.
    await client.next(({ type, stream: of }) => type === FRAME.data && of === stream);
    await untilKept(agent, "unread", (exec) => exec?.exit !== undefined);
    return { client, stream };
  }

  /** The status that comes when the call reads on, after more than the second for which a status used to wait. */
  async function statusLater(client: RawHttp2, stream: number): Promise<[code: string | undefined, details: string]> {
    await new ExecStream(agent).start({ args: ["sleep", "2"] }).outcome();
    assert.equal(client.hasClosed(stream), false);
    for (const id of [0, stream]) client.send(rawFrame(FRAME.windowUpdate, 0, id, uint32(UNREAD_BYTES)));
    const fields = await client.status(stream);
    const details = Buffer.from(fields.get("grpc-status-details-bin") ?? "", "base64").toString("latin1");
    return [fields.get("grpc-status"), details];
  }

  for (const [what, code, reason, lose] of [
    ["it was taken over", status.ABORTED, /EXEC_TAKEN_OVER/, () => attach(agent, { name: "unread", fromNow: true })],
    ["the exec was forgotten", status.NOT_FOUND, /EXEC_UNKNOWN/, () => endExec(agent, { name: "unread" })],
  ] as const)
    it(`a client that did not read learns later that ${what}`, async () => {
      const { client, stream } = await unread();
      using _ = client;
      await lose();
      const [told, details] = await statusLater(client, stream);
      assert.equal(told, String(code));
      assert.match(details, reason);
    });
});
