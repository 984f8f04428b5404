import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import { inspect } from "node:util";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import {
  EXEC_LIMIT,
  KEPT_BUFFER_LIMIT_BYTES,
  KEPT_BUFFERS_LIMIT_BYTES,
  KEPT_COMMAND_LIMIT,
} from "../../../src/agent/domain/index.ts";
import { ExecWhenFull } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { DEFAULT_HTTP2_LIMITS } from "../../../src/agent/http2/limits.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { connect, exec, ExecStream, failingExec } from "../../fixtures/exec-stream.ts";
import { attach, endAll, type Joined, keep, listExecs, receiveAll, untilKept } from "../../fixtures/kept-commands.ts";
import { noProcessWith, processesWith } from "../../fixtures/proc.ts";
import { activityNs, clientOf } from "../../fixtures/guest-client.ts";

const RUN = String(process.pid).padStart(7, "0");
const MIB = 2 ** 20;

const agent = forAllTests(await startAgent());
const node = forAllTests(clientOf(agent));
afterEach(() => endAll(agent));

describe("limits of kept commands", () => {
  it("kept commands are limited to 64 and their buffers to 32 MiB", async () => {
    const client = connect(agent);
    for (let count = 0; count < KEPT_COMMAND_LIMIT; count++) {
      const first = await keep(agent, { args: ["true"], keep: { name: `n${count}`, bufferBytes: 1 } }, client);
      await first.stream.outcome();
    }
    const limit = {
      code: status.RESOURCE_EXHAUSTED,
      reason: "TOO_MANY_KEPT_EXECS",
      metadata: { limit: String(KEPT_COMMAND_LIMIT) },
    };
    await assert.rejects(keep(agent, { args: ["true"], keep: { name: "more" } }), limit);
    // An exec that takes another's place needs no place of its own.
    const instead = { name: "n0", replaceEnded: true, bufferBytes: KEPT_BUFFER_LIMIT_BYTES };
    const replacing = await keep(agent, { args: ["true"], keep: instead }, client);
    await replacing.stream.outcome();
    client.close();
    await endAll(agent);
    assert.deepEqual(await listExecs(agent), []);
    for (let bytes = 0; bytes < KEPT_BUFFERS_LIMIT_BYTES; bytes += 16 * MIB) {
      using _ = await keep(agent, { args: ["true"], keep: { name: `b${bytes}`, bufferBytes: 16 * MIB } });
    }
    const tooMuch = await failingExec(agent, { args: ["true"], keep: { name: "b", bufferBytes: 1 } });
    assert.deepEqual([tooMuch.code, tooMuch.reason], [status.RESOURCE_EXHAUSTED, "TOO_MANY_KEPT_BYTES"]);
    assert.equal(tooMuch.metadata["limitBytes"], String(KEPT_BUFFERS_LIMIT_BYTES));
    for (const wrong of [{ bufferBytes: 16 * MIB + 1 }, { lingerMs: 2n ** 31n }, { whenFull: 3 as ExecWhenFull }]) {
      const wrongly = keep(agent, { args: ["true"], keep: { name: "wrong", ...wrong } });
      await assert.rejects(wrongly, { code: status.INVALID_ARGUMENT, reason: "INVALID_FIELD" });
    }
  });

  it("a kept command counts toward the exec limit only while it runs", async () => {
    const lingering = await keep(agent, { args: ["true"], keep: { name: "lingers" } });
    await lingering.stream.outcome();
    using running = await keep(agent, { args: ["sleep", "1000"], keep: { name: "runs" } });
    const clients = Array.from({ length: EXEC_LIMIT / DEFAULT_HTTP2_LIMITS.streams }, () => connect(agent));
    const plain = await Promise.all(
      Array.from({ length: EXEC_LIMIT - 1 }, async (_, index) => {
        const stream = new ExecStream(agent, clients[index % clients.length]);
        await stream.start({ args: ["sleep", `424242.750${RUN}`] }).next();
        return stream;
      }),
    );
    for (const keeping of [undefined, { name: "more" }]) {
      const failure = await failingExec(agent, { args: ["true"], ...(keeping && { keep: keeping }) });
      assert.deepEqual([failure.code, failure.reason], [status.RESOURCE_EXHAUSTED, "TOO_MANY_EXECS"]);
    }
    assert.equal(running.started.kept, true);
    for (const stream of plain) stream[Symbol.dispose]();
    for (const client of clients) client.close();
    await noProcessWith(`424242.750${RUN}`);
    // Places are free a moment after their processes have ended; the test's time limit bounds the wait.
    while ((await exec(agent, { args: ["true"] }).catch(() => undefined)) === undefined);
  });

  it("a rejected exec leaves an ended exec of the same name intact", async () => {
    const ended = await keep(agent, { args: ["echo", "result"], keep: { name: "ended", bufferBytes: 7 } });
    await ended.stream.outcome();
    using _ = await keep(agent, { args: ["true"], keep: { name: "full", bufferBytes: 16 * MIB } });
    using __ = await keep(agent, { args: ["true"], keep: { name: "nearly", bufferBytes: 15 * MIB } });
    const larger = { name: "ended", replaceEnded: true, bufferBytes: 2 * MIB };
    const refused = keep(agent, { args: ["true"], keep: larger });
    await assert.rejects(refused, { code: status.RESOURCE_EXHAUSTED, reason: "TOO_MANY_KEPT_BYTES" });
    assert.equal((await listExecs(agent))[0]?.execId, ended.started.execId);
  });
});

describe("ListExecs", () => {
  it("ListExecs lists kept commands in start order without arguments or variables", async () => {
    const earliest = Date.now();
    const secret = "a-secret-argument";
    using first = await keep(agent, {
      args: ["sh", "-c", `read x; : ${secret}`],
      env: { SECRET: secret },
      stdin: true,
      terminal: {},
      keep: { name: "b" },
    });
    using second = await keep(agent, { args: ["sleep", "1000"], keep: { name: "a" } });
    await exec(agent, { args: ["true"] });
    const list = await listExecs(agent);
    const told = (name: string, { started: { pid, execId, terminal } }: Joined) => ({
      name,
      pid,
      execId,
      terminal,
      attached: true,
    });
    assert.partialDeepStrictEqual(list, [told("b", first), told("a", second)]);
    assert.equal(list.length, 2);
    for (const { started } of list) {
      assert.ok(started !== undefined);
      assert.ok(timestampMs(started) >= earliest - 1 && timestampMs(started) <= Date.now() + 1);
    }
    assert.doesNotMatch(inspect(list, { depth: null }), new RegExp(secret));
  });
});

describe("user activity", () => {
  it("a running command counts as user activity for `awakeForMs`, even without a client", async () => {
    const awake = { name: "awake", awakeForMs: 3_600_000n };
    const first = await keep(agent, { args: ["sleep", "1000"], keep: awake });
    first.stream[Symbol.dispose]();
    await untilKept(agent, "awake", (found) => found?.attached === false);
    const [listed] = await listExecs(agent);
    assert.ok((listed?.awakeLeftMs ?? 0n) > 3_000_000n && (listed?.awakeLeftMs ?? 0n) <= 3_600_000n);
    assert.notEqual(await activityNs(node), await activityNs(node));
    await endAll(agent);
    const ended = await activityNs(node);
    assert.equal(await activityNs(node), ended);
    const brief = await keep(agent, { args: ["sleep", "1000"], keep: { name: "brief", awakeForMs: 50n } });
    brief.stream[Symbol.dispose]();
    await untilKept(agent, "brief", (found) => found?.awakeLeftMs === 0n);
    const over = await activityNs(node);
    assert.equal(await activityNs(node), over);
    const tooLong = { name: "long", awakeForMs: 86_400_001n };
    const refused = await failingExec(agent, { args: ["true"], keep: tooLong });
    assert.deepEqual([refused.reason, refused.metadata["field"]], ["INVALID_FIELD", "start.keep.awake_for_ms"]);
  });

  it("an attached call without a terminal counts as user activity", async () => {
    const first = await keep(agent, { args: ["sleep", "1000"], keep: { name: "busy" } });
    assert.notEqual(await activityNs(node), await activityNs(node));
    first[Symbol.dispose]();
    await untilKept(agent, "busy", (kept) => kept?.attached === false);
    const left = await activityNs(node);
    assert.equal(await activityNs(node), left);
    using second = await attach(agent, { name: "busy", fromNow: true });
    const joined = await activityNs(node);
    assert.ok(joined > left);
    assert.notEqual(await activityNs(node), joined);
    assert.equal(second.started.kept, true);
  });

  it("a kept command's end is user activity only with an attached client", async () => {
    const first = await keep(agent, { args: ["sleep", "1000"], keep: { name: "alone" } });
    first[Symbol.dispose]();
    await untilKept(agent, "alone", (kept) => kept?.attached === false);
    using shell = await keep(agent, { args: ["sleep", "1000"], terminal: {}, keep: { name: "shell" } });
    const earlier = await activityNs(node);
    process.kill(first.started.pid, "SIGKILL");
    await untilKept(agent, "alone", (kept) => kept?.exit !== undefined);
    assert.equal(await activityNs(node), earlier);
    process.kill(shell.started.pid, "SIGKILL");
    await shell.stream.outcome();
    assert.ok((await activityNs(node)) > earlier);
  });

  it("an attached terminal counts as user activity only when something is typed", async () => {
    using first = await keep(agent, { args: ["cat"], terminal: {}, keep: { name: "typed" } });
    const earlier = await activityNs(node);
    assert.equal(await activityNs(node), earlier);
    first.stream.stdin("x");
    await first.stream.until("x");
    assert.ok((await activityNs(node)) > earlier);
  });
});

describe("a kept command at a restore", () => {
  it("a restore ends the call attached to a kept command; the command continues", async () => {
    await using restored = await startAgent();
    using client = clientOf(restored);
    const first = await keep(restored, { args: ["cat"], stdin: true, keep: { name: "through" } });
    await first.stream.stdin("before ").until("before ");
    using plain = new ExecStream(restored);
    await plain.start({ args: ["sleep", "1000"] }).next();
    await client.snapshots.duties({ entropy: Buffer.alloc(64, 7) });
    for (const { stream } of [{ stream: plain }, first]) await assert.rejects(stream.outcome());
    using second = await attach(restored, { name: "through", stdoutOffset: 0n });
    assert.deepEqual([second.started.pid, second.started.stdinOffset], [first.started.pid, 7n]);
    second.stream.stdin("after").send({ case: "stdinClose", value: {} });
    assert.equal((await receiveAll(second)).text(), "before after");
  });
});

describe("a kept command at the agent's end", () => {
  it("kept commands end with their process trees when the agent stops", async () => {
    await using ending = await startAgent();
    const mark = `424242.875${RUN}`;
    const whenFull = ExecWhenFull.BLOCK;
    const line = (command: string): string[] => ["sh", "-c", `setsid sleep ${mark} & ${command}`];
    const lost = await keep(ending, { args: line("sleep 1000"), keep: { name: "lost" } });
    const blocked = await keep(ending, { args: line("exec yes"), keep: { name: "blocked", whenFull, bufferBytes: 1 } });
    const ended = await keep(ending, { args: ["true"], keep: { name: "ended" } });
    await ended.stream.outcome();
    for (const call of [lost, blocked, ended]) call[Symbol.dispose]();
    using there = await keep(ending, { args: line("sleep 1000"), keep: { name: "there" } });
    await untilKept(ending, "blocked", (kept) => kept?.heldBytes === 1n && !kept.attached);
    assert.notDeepEqual(await processesWith(mark), []);
    const outcome = receiveAll(there);
    assert.equal((await ending.stop()).code, 0);
    const { exit } = await outcome;
    assert.ok(exit?.case === "exit");
    assert.equal(exit.value.signal, 15);
    await noProcessWith(mark);
  });
});
