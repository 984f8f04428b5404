import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { type ExecFrame } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { type ExecStream, failingExec, type StartInit } from "../../fixtures/exec-stream.ts";
import {
  attach,
  endAll,
  endExec,
  keep,
  keptCommand,
  Received,
  receiveAll,
  signalExec,
  untilKept,
} from "../../fixtures/kept-commands.ts";
import { processGone } from "../../fixtures/proc.ts";

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(await startAgent());
afterEach(() => endAll(agent));

const FROM_START = { stdoutOffset: 0n, stderrOffset: 0n };
const CLOSE = { case: "stdinClose", value: {} } as const;
const UNKNOWN = { code: status.NOT_FOUND, reason: "EXEC_UNKNOWN" };

function shell(line: string): string[] {
  return ["sh", "-c", line];
}

/** Reads frames until one is of the wanted kind. */
async function frameOf<Case extends ExecFrame["frame"]["case"]>(
  stream: ExecStream,
  wanted: Case,
): Promise<Extract<ExecFrame["frame"], { case: Case }>> {
  for (;;) {
    const frame = await stream.next();
    if (frame === undefined) throw new Error(`the call ended before ${wanted}`);
    if (frame.case === wanted) return frame as Extract<ExecFrame["frame"], { case: Case }>;
  }
}

/** A command that echoes its input and ends with it. */
function echo(keeping: NonNullable<StartInit["keep"]>): StartInit {
  return { args: ["cat"], stdin: true, keep: keeping };
}

describe("a kept command", () => {
  it("the `started` frame of a kept command has execId, pid and offsets", async () => {
    using first = await keep(agent, echo({ name: "told" }));
    const { kept, execId, pid, stdoutOffset, stderrOffset, stdinOffset, stdinClosed, terminal, stdin } = first.started;
    assert.match(execId, /^[0-9a-f]{32}$/);
    assert.ok(pid > 0);
    assert.deepEqual([kept, stdinClosed, terminal, stdin], [true, false, false, true]);
    assert.deepEqual([stdoutOffset, stderrOffset, stdinOffset], [0n, 0n, 0n]);
    using deaf = await keep(agent, { args: ["sleep", "1000"], keep: { name: "deaf" } });
    assert.deepEqual([deaf.started.stdin, deaf.started.stdinClosed], [false, true], "started without input");
  });

  it("a half-closed call does not close a kept command's standard input", async () => {
    using first = await keep(agent, echo({ name: "half" }));
    first.stream.stdin("still ").end();
    await first.stream.until("still ");
    using second = await attach(agent, { name: "half", ...FROM_START, size: { cols: 80, rows: 24 } });
    assert.deepEqual([second.started.stdinClosed, second.started.terminal], [false, false]);
    second.stream.stdin("open").send(CLOSE).end();
    assert.equal((await receiveAll(second)).text(), "still open");
  });

  it("attach returns output from any requested offset", async () => {
    using first = await keep(agent, {
      args: shell("printf 01234; printf ab >&2; read x"),
      stdin: true,
      keep: { name: "at" },
    });
    await first.stream.until("01234");
    await untilKept(agent, "at", (exec) => exec?.stderrOffset === 2n);
    const cases: [from: { stdoutOffset?: bigint; stderrOffset?: bigint }, stdout: string, stderr: string][] = [
      [{ stdoutOffset: 0n, stderrOffset: 0n }, "01234", "ab"],
      [{ stdoutOffset: 1n, stderrOffset: 2n }, "1234", ""],
      [{ stdoutOffset: 4n, stderrOffset: 1n }, "4", "b"],
      [{ stdoutOffset: 5n, stderrOffset: 0n }, "", "ab"],
      [{ stdoutOffset: 3n }, "34", ""],
      [{ stderrOffset: 0n }, "", "ab"],
    ];
    for (const [from, stdout, stderr] of cases) {
      using next = await attach(agent, { name: "at", ...from });
      assert.equal(next.started.stdoutOffset, from.stdoutOffset ?? 5n);
      assert.equal(next.started.stderrOffset, from.stderrOffset ?? 2n);
      const received = new Received(next.started);
      while (received.stdout.end < 5 || received.stderr.end < 2) {
        const frame = await next.stream.next();
        assert.ok(frame !== undefined && received.take(frame));
      }
      assert.deepEqual([received.text("stdout"), received.text("stderr")], [stdout, stderr]);
    }
    using last = await attach(agent, { name: "at", fromNow: true });
    last.stream.stdin("\n");
    assert.equal((await receiveAll(last)).text(), "");
  });

  it("an invalid attach fails and leaves the already attached call undisturbed", async () => {
    using first = await keep(agent, echo({ name: "where" }));
    first.stream.stdin("abc");
    await first.stream.until("abc");
    const { INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE } = status;
    const cases = [
      [{ name: "where" }, INVALID_ARGUMENT, "INVALID_FIELD"],
      [{ name: "where", fromNow: true, stderrOffset: 0n }, INVALID_ARGUMENT, "INVALID_FIELD"],
      [{ name: "where", fromNow: true, size: { cols: 70_000, rows: 1 } }, INVALID_ARGUMENT, "INVALID_FIELD"],
      [{ name: "where", stdoutOffset: 4n }, OUT_OF_RANGE, "EXEC_OFFSET_PAST_END"],
      [{ name: "where", stdoutOffset: 3n, stderrOffset: 1n }, OUT_OF_RANGE, "EXEC_OFFSET_PAST_END"],
      [{ name: "where", stdoutOffset: 2n ** 64n - 1n }, OUT_OF_RANGE, "EXEC_OFFSET_PAST_END"],
      [{ name: "where", execId: "0".repeat(32), fromNow: true }, NOT_FOUND, "EXEC_UNKNOWN"],
      [{ name: "nowhere", fromNow: true }, NOT_FOUND, "EXEC_UNKNOWN"],
      [{ name: "", fromNow: true }, NOT_FOUND, "EXEC_UNKNOWN"],
    ] as const;
    for (const [request, code, reason] of cases) await assert.rejects(attach(agent, request), { code, reason });
    first.stream.stdin("def");
    await first.stream.until("def");
  });

  it("a kept command gets each input byte once and none after `stdin_close`", async () => {
    const first = await keep(agent, { args: shell("cat; exec sleep 1000"), stdin: true, keep: { name: "in" } });
    first.stream.stdin("abc").stdin("def");
    while ((await frameOf(first.stream, "stdinAck")).value.offset < 6n);
    first[Symbol.dispose]();
    using second = await attach(agent, { name: "in", ...FROM_START });
    assert.equal(second.started.stdinOffset, 6n);
    second.stream.stdin("ghi").send(CLOSE).send(CLOSE);
    assert.equal(await second.stream.until("ghi"), "abcdefghi");
    await untilKept(agent, "in", (exec) => exec?.stdinClosed === true && exec.stdoutOffset === 9n);
    second[Symbol.dispose]();
    using third = await attach(agent, { name: "in", fromNow: true });
    assert.equal(third.started.stdinClosed, true);
    third.stream.send(CLOSE).stdin("late");
    await assert.rejects(third.stream.outcome(), { code: status.INVALID_ARGUMENT, reason: "FRAME_ORDER" });
    assert.equal((await untilKept(agent, "in", (exec) => exec?.attached === false))?.exit, undefined);
  });

  it("a kept command gets input and EOF that a disconnected client sent", async () => {
    const gate = join(directory, "gate");
    const line = `while [ ! -e ${gate} ]; do sleep 0.02; done; wc -c`;
    const sender = await keep(agent, { args: shell(line), stdin: true, keep: { name: "end" } });
    // More than pipe and queue hold: it is taken at once, and leaves room for nothing else.
    const input = Buffer.alloc(1024 * 1024);
    sender.stream.stdin(input);
    while ((await frameOf(sender.stream, "stdinAck")).value.offset < BigInt(input.length));
    sender.stream.send(CLOSE);
    await untilKept(agent, "end", (exec) => exec?.stdinClosed === true);
    sender[Symbol.dispose]();
    await writeFile(gate, "");
    using reader = await attach(agent, { name: "end", ...FROM_START });
    assert.equal(Number((await receiveAll(reader)).text()), input.length);
  });

  it("after a kept command's end, clients can attach repeatedly and read all output", async () => {
    const first = await keep(agent, { args: shell("echo out; echo err >&2; exit 7"), keep: { name: "late" } });
    await first.stream.outcome();
    first[Symbol.dispose]();
    for (const from of [FROM_START, { stdoutOffset: 4n, stderrOffset: 4n }, FROM_START]) {
      using next = await attach(agent, { name: "late", ...from });
      const received = await receiveAll(next);
      assert.equal(received.text("stdout"), from === FROM_START ? "out\n" : "");
      assert.equal(received.text("stderr"), from === FROM_START ? "err\n" : "");
      assert.ok(received.exit?.case === "exit");
      assert.deepEqual([received.exit.value.code, received.exit.value.outputComplete], [7, true]);
    }
    const exec = await keptCommand(agent, "late");
    assert.deepEqual([exec?.exit?.code, exec?.attached, exec?.heldBytes], [7, false, 8n]);
  });

  it("a kept command replays stdout and stderr in their original order", async () => {
    const line = 'for i in 1 2 3; do echo "o$i"; read x; echo "e$i" >&2; read x; done';
    using first = await keep(agent, { args: shell(line), stdin: true, keep: { name: "order" } });
    for (const word of ["o1", "e1", "o2", "e2", "o3", "e3"]) {
      await first.stream.until(`${word}\n`);
      first.stream.stdin("\n");
    }
    await first.stream.outcome();
    using second = await attach(agent, { name: "order", ...FROM_START });
    let seen = "";
    await receiveAll(second, (_, frame) => {
      if (frame.case === "stdout" || frame.case === "stderr") seen += Buffer.from(frame.value).toString();
    });
    assert.equal(seen, "o1\ne1\no2\ne2\no3\ne3\n");
  });

  it("a client can attach to a kept command's terminal and resize it", async () => {
    const line = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    const terminal = { cols: 80, rows: 24 };
    const first = await keep(agent, { args: shell(line), terminal, keep: { name: "screen" } });
    assert.deepEqual([first.started.terminal, first.started.stdin], [true, true]);
    await first.stream.until("ready\r\n");
    first[Symbol.dispose]();
    using second = await attach(agent, { name: "screen", stdoutOffset: 0n, size: { cols: 100, rows: 40 } });
    assert.match(await second.stream.until("40 100"), /^ready\r\n/);
    second.stream.send({ case: "resize", value: { cols: 90, rows: 30 } });
    await second.stream.until("30 90");
  });
});

describe("the call of a kept command", () => {
  it("a new attach to a kept command ends the previous attached call with EXEC_TAKEN_OVER", async () => {
    using unread = await keep(agent, { args: ["cat", "/dev/zero"], keep: { name: "flood" } });
    using second = await attach(agent, { name: "flood", fromNow: true });
    await frameOf(second.stream, "stdout");
    using third = await attach(agent, { name: "flood", fromNow: true });
    for (const { stream } of [unread, second]) {
      const { code, reason, metadata } = await stream.failure();
      assert.deepEqual([code, reason, metadata["name"]], [status.ABORTED, "EXEC_TAKEN_OVER", "flood"]);
    }
    await frameOf(third.stream, "stdout");
  });

  it("an invalid frame ends the call but not the kept command", async () => {
    const { INVALID_ARGUMENT, OUT_OF_RANGE } = status;
    using first = await keep(agent, { args: shell("printf abc; exec sleep 1000"), keep: { name: "frames" } });
    await first.stream.until("abc");
    const attachAgain = { case: "attach", value: { name: "frames", fromNow: true } } as const;
    const cases: [Parameters<ExecStream["send"]>[0], number, string][] = [
      [{ case: "stdin", value: Buffer.from("x") }, INVALID_ARGUMENT, "FRAME_ORDER"],
      [{ case: "resize", value: { cols: 80, rows: 24 } }, INVALID_ARGUMENT, "FRAME_ORDER"],
      [{ case: "signal", value: { number: 65 } }, INVALID_ARGUMENT, "INVALID_FIELD"],
      [{ case: "start", value: { args: ["true"] } }, INVALID_ARGUMENT, "FRAME_ORDER"],
      [attachAgain, INVALID_ARGUMENT, "FRAME_ORDER"],
      [{ case: "gap", value: { bytes: 1n } }, INVALID_ARGUMENT, "FRAME_ORDER"],
      [{ case: "stdinAck", value: {} }, INVALID_ARGUMENT, "FRAME_ORDER"],
      [{ case: "ack", value: { stdoutOffset: 4n } }, OUT_OF_RANGE, "EXEC_OFFSET_PAST_END"],
      [{ case: "ack", value: { stderrOffset: 2n ** 64n - 1n } }, OUT_OF_RANGE, "EXEC_OFFSET_PAST_END"],
    ];
    for (const [frame, code, reason] of cases) {
      using next = await attach(agent, { name: "frames", fromNow: true });
      const failure = await next.stream.send(frame).failure();
      assert.deepEqual([frame.case, failure.code, failure.reason], [frame.case, code, reason]);
    }
    assert.equal((await untilKept(agent, "frames", (exec) => exec?.attached === false))?.exit, undefined);
  });
});

describe("the name of a kept command", () => {
  it("an exec name requires 1 to 128 characters of A-Za-z0-9._-", async () => {
    for (const name of ["", "a b", "a/b", "ä", "a\n", "x".repeat(129)]) {
      const failure = await failingExec(agent, { args: ["true"], keep: { name } });
      assert.deepEqual([failure.code, failure.metadata["field"]], [status.INVALID_ARGUMENT, "start.keep.name"]);
    }
    for (const name of ["x".repeat(128), ".", "A-1_b.c", "__proto__", "constructor"]) {
      using first = await keep(agent, { args: ["true"], keep: { name } });
      assert.equal(first.started.kept, true);
    }
  });

  it("a duplicate exec name fails with EXEC_NAME_IN_USE, naming the existing exec", async () => {
    using first = await keep(agent, echo({ name: "mine" }));
    const { pid, execId } = first.started;
    for (const replaceEnded of [false, true]) {
      const metadata = { name: "mine", pid: String(pid), execId, state: "running" };
      await assert.rejects(keep(agent, { args: ["true"], keep: { name: "mine", replaceEnded } }), {
        code: status.ALREADY_EXISTS,
        reason: "EXEC_NAME_IN_USE",
        metadata,
      });
    }
    await first.stream.send(CLOSE).outcome();
    const ended = await failingExec(agent, { args: ["true"], keep: { name: "mine" } });
    assert.deepEqual([ended.code, ended.metadata["state"]], [status.ALREADY_EXISTS, "ended"]);
    using second = await keep(agent, echo({ name: "mine", replaceEnded: true }));
    assert.notEqual(second.started.execId, execId);
    await assert.rejects(attach(agent, { name: "mine", execId, fromNow: true }), UNKNOWN);
  });

  it("an exec name is free again if the command cannot start", async () => {
    const failure = await failingExec(agent, { args: ["no-such-command"], keep: { name: "none" } });
    assert.equal(failure.reason, "EXEC_NOT_FOUND");
    assert.equal(await keptCommand(agent, "none"), undefined);
    using second = await keep(agent, { args: ["true"], keep: { name: "none" } });
    assert.equal(second.started.kept, true);
  });
});

describe("the end of a kept command", () => {
  it("EndExec ends the process tree; a second EndExec forgets the exec", async () => {
    const line = "trap 'echo bye; exit 3' TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.05; done";
    const first = await keep(agent, { args: shell(line), keep: { name: "tree" } });
    const child = Number(await first.stream.until("\n"));
    first[Symbol.dispose]();
    const ended = await endExec(agent, { name: "tree" });
    assert.deepEqual([ended.exit?.code, ended.exit?.signal, ended.forgotten], [3, 0, false]);
    await processGone(child);
    using second = await attach(agent, { name: "tree", ...FROM_START });
    assert.match((await receiveAll(second)).text(), /bye\n$/);
    assert.equal((await endExec(agent, { name: "tree", execId: first.started.execId })).forgotten, true);
    await assert.rejects(endExec(agent, { name: "tree" }), UNKNOWN);
  });

  it("EndExec sends SIGKILL after its grace period; a second EndExec can send it earlier", async () => {
    const line = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    for (const name of ["soft", "hard"]) {
      using first = await keep(agent, { args: shell(line), keep: { name } });
      await first.stream.until("up");
    }
    assert.equal((await endExec(agent, { name: "soft", graceMs: 100n })).exit?.signal, 9);
    const slow = endExec(agent, { name: "hard", graceMs: 600_000n });
    assert.equal((await endExec(agent, { name: "hard", signal: 9 })).exit?.signal, 9);
    assert.equal((await slow).exit?.signal, 9);
  });

  it("SignalExec does not end the attached call, and rejects an ended command", async () => {
    const line = "trap 'echo one' USR1; echo up; while :; do sleep 0.05; done";
    using first = await keep(agent, { args: shell(line), keep: { name: "told" } });
    assert.equal(Buffer.from((await frameOf(first.stream, "stdout")).value).toString(), "up\n");
    await signalExec(agent, { name: "told", execId: first.started.execId, signal: 10 });
    assert.equal(Buffer.from((await frameOf(first.stream, "stdout")).value).toString(), "one\n");
    await signalExec(agent, { name: "told", signal: 9 });
    assert.equal((await frameOf(first.stream, "exit")).value.signal, 9);
    first.stream.end();
    for (const [request, code, reason] of [
      [{ name: "told", signal: 9 }, status.FAILED_PRECONDITION, "EXEC_ENDED"],
      [{ name: "told", execId: "0".repeat(32), signal: 9 }, status.NOT_FOUND, "EXEC_UNKNOWN"],
      [{ name: "nobody", signal: 9 }, status.NOT_FOUND, "EXEC_UNKNOWN"],
      [{ name: "told", signal: 0 }, status.INVALID_ARGUMENT, "INVALID_FIELD"],
      [{ name: "told", signal: 65 }, status.INVALID_ARGUMENT, "INVALID_FIELD"],
    ] as const)
      await assert.rejects(signalExec(agent, request), { code, reason });
    for (const wrong of [{ signal: 65 }, { graceMs: 600_001n }, { graceMs: 2n ** 64n - 1n }])
      await assert.rejects(endExec(agent, { name: "x", ...wrong }), { reason: "INVALID_FIELD" }, "by EndExec");
  });

  it("a kept command's timeout ends it although no client is attached", async () => {
    const first = await keep(agent, { args: ["sleep", "1000"], timeoutMs: 3_000n, keep: { name: "timed" } });
    first[Symbol.dispose]();
    const ended = await untilKept(agent, "timed", (exec) => exec?.exit !== undefined);
    assert.deepEqual([ended?.exit?.timedOut, ended?.exit?.signal], [true, 15]);
  });

  it("a kept command and its name are forgotten after linger_ms", async () => {
    const first = await keep(agent, { args: shell("echo x"), keep: { name: "brief", lingerMs: 1n } });
    // The attached call is not cut short.
    assert.equal(String((await first.stream.outcome()).stdout), "x\n");
    await untilKept(agent, "brief", (exec) => exec === undefined);
    await assert.rejects(attach(agent, { name: "brief", ...FROM_START }), UNKNOWN);
  });

  it("after a `forget` frame, the agent forgets the exec as soon as it ends", async () => {
    const first = await keep(agent, echo({ name: "gone" }));
    const { exit } = await receiveAll({
      ...first,
      stream: first.stream.send({ case: "forget", value: {} }).send(CLOSE),
    });
    assert.equal(exit?.case, "exit");
    await untilKept(agent, "gone", (exec) => exec === undefined);
    const second = await keep(agent, echo({ name: "gone" }));
    second.stream.send({ case: "forget", value: {} }).stdin("x");
    await second.stream.until("x");
    second[Symbol.dispose]();
    await untilKept(agent, "gone", (exec) => exec?.attached === false);
    await endExec(agent, { name: "gone" });
    assert.equal(await keptCommand(agent, "gone"), undefined);
  });
});
