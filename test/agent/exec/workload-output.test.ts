import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { connect, type ExecStream, exec } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { attach, type Dialled, type Joined, Received, receiveAll } from "../../fixtures/kept-commands.ts";
import { seededRandom } from "../../fixtures/seeded-random.ts";

const KIB = 1024;
const directory = forAllTests(await testDirectory()).path;

/** An agent whose workload is this shell line, with its output kept. */
function keeping(
  line: string,
  options: Parameters<typeof startAgent>[0] = {},
  bufferBytes = 256 * KIB,
): Promise<RunningAgent> {
  const output = { keep: { buffer_bytes: bufferBytes } };
  return startAgent({ ...options, process: { args: ["bash", "-c", line], output, stop_grace_ms: 60_000 } });
}

function read(agent: Dialled, stdoutOffset: number = 0, stderrOffset: number = 0): Promise<Joined> {
  return attach(agent, { workload: true, stdoutOffset: BigInt(stdoutOffset), stderrOffset: BigInt(stderrOffset) });
}

/** Reads until the call has seen that text. */
async function readUntil({ stream, started }: Joined, text: string): Promise<Received> {
  const received = new Received(started);
  while (!received.text().includes(text)) {
    const frame = await stream.next();
    if (frame === undefined || !received.take(frame)) throw new Error(`${frame?.case} before ${text}`);
  }
  return received;
}

/** A `sh` loop that waits for a file. */
const untilThere = (file: string): string => `until test -e ${file}; do sleep 0.02; done`;

describe("the workload's output, kept", () => {
  it("kept workload output reaches both the console and its readers", async () => {
    const tells = "test -t 1 || echo stdout is a pipe >&2; cat; echo out; echo err >&2; exec sleep 1000";
    const input = join(directory, "input");
    writeFileSync(input, "typed\n");
    await using agent = await keeping(tells, { through: ["sh", "-c", `exec "$@" < ${input}`, "sh"] });
    using all = await read(agent);
    assert.equal((await readUntil(all, "out\n")).text(), "typed\nout\n");
    assert.deepEqual([all.started.kept, all.started.terminal, all.started.stdinClosed], [true, false, true]);
    assert.equal(String(all.started.pid), String((await agent.logged("workload_started"))["pid"]));
    await agent.printed(/typed\nout\n/);
    // Two readers, neither of which ends the other; offsets count what there was before.
    using second = await read(agent, 6);
    assert.equal(second.started.execId, all.started.execId);
    assert.equal((await readUntil(second, "out\n")).text(), "out\n");
    assert.deepEqual([second.started.stdoutEnd, second.started.stdoutOffset], [10n, 6n]);
    await agent.stop();
    assert.equal(agent.output.stderr, "stdout is a pipe\nerr\n");
  });

  it("100 successive readers together receive exactly the console's output", async () => {
    const go = join(directory, "hundred");
    const line = `i=0; while :; do i=$((i+1)); echo "$i $RANDOM"; if ((i % 50 == 0)); then echo "$i" >&2; sleep 0.002; fi; test -e ${go} && break; done; exec sleep 1000`;
    // Large enough that nothing is dropped while the next reader connects, however busy the machine is.
    await using agent = await keeping(line, {}, 4 * 1024 * KIB);
    const random = seededRandom(52);
    const whole = { stdout: "", stderr: "" };
    for (let reader = 0; reader < 100; reader++) {
      const client = connect(agent);
      const from = { stdoutOffset: BigInt(whole.stdout.length), stderrOffset: BigInt(whole.stderr.length) };
      const joined = await attach(agent, { workload: true, ...from }, client);
      const received = new Received(joined.started);
      for (let frames = random.below(8); frames >= 0; frames--) {
        const frame = await joined.stream.next();
        if (frame === undefined || !received.take(frame)) throw new Error(`${frame?.case} in the middle`);
      }
      client.close();
      joined[Symbol.dispose]();
      assert.deepEqual([received.stdout.gapBytes, received.stderr.gapBytes], [0, 0]);
      whole.stdout += received.text();
      whole.stderr += received.text("stderr");
    }
    writeFileSync(go, "");
    using last = await read(agent, whole.stdout.length, whole.stderr.length);
    const rest = receiveAll(last);
    await agent.stop();
    whole.stdout += (await rest).text();
    whole.stderr += (await rest).text("stderr");
    assert.ok(whole.stdout === agent.output.stdout, "the readers have what the console has");
    assert.ok(whole.stderr === agent.output.stderr, "of both streams");
    assert.ok(whole.stdout.length > 2_000);
  });

  it("a workload does not wait for output readers, and dropped console bytes are counted", async () => {
    const [taken, take, more] = ["taken", "take", "more"].map((name) => join(directory, name)) as [
      string,
      string,
      string,
    ];
    const line = `seq 1000000; echo done >&2; ${untilThere(more)}; echo last; exec sleep 1000`;
    const console = `exec 1> >(${untilThere(take)}; cat > ${taken}); exec "$@"`;
    await using agent = await keeping(line, { through: ["bash", "-c", console, "bash"] });
    using stuck = await read(agent);
    using other = await attach(agent, { workload: true, stderrOffset: 0n });
    await other.stream.until("done");
    const total = `${Array.from({ length: 1_000_000 }, (_, index) => `${index + 1}\n`).join("")}last\n`;
    // The queue for the console has had no room; once that takes something, it has.
    writeFileSync(take, "");
    await until(() => existsSync(taken) && statSync(taken).size > 256 * KIB, "the console took a part");
    writeFileSync(more, "");
    await until(() => readFileSync(taken, "latin1").endsWith("last\n"), "the console took the last line");
    // What a reader has not read and the ring does not hold is a gap; the rest follows whole.
    const received = await readUntil(stuck, "last\n");
    assert.equal(received.stdout.end, total.length);
    assert.ok(received.stdout.gapBytes > 0);
    assert.ok(total.endsWith(String(received.stdout.chunks.at(-1))));
    await agent.stop();
    const held = readFileSync(taken, "latin1");
    const lost = agent.log.filter(({ event }) => event === "console_output_dropped");
    assert.equal(held.length + lost.reduce((sum, { dropped_bytes: bytes }) => sum + Number(bytes), 0), total.length);
    assert.ok(total.startsWith(held.slice(0, 256 * KIB)));
  });

  it("workload output is readable to its end while the agent shuts down", async () => {
    const [end, trapped] = [join(directory, "end"), join(directory, "trapped")];
    const trap = `trap 'echo asked' TERM; (trap '' TERM; >${trapped}; ${untilThere(end)}; echo child) & ${untilThere(end)}; exit 7`;
    await using agent = await keeping(trap);
    using early = await read(agent);
    await until(() => existsSync(trapped), "the workload catches SIGTERM");
    agent.kill("SIGTERM");
    await readUntil(early, "asked\n");
    await assert.rejects(exec(agent, { args: ["true"] }), { code: status.UNAVAILABLE, reason: "SHUTTING_DOWN" });
    using late = await read(agent);
    const rest = receiveAll(late);
    writeFileSync(end, "");
    const received = await rest;
    assert.equal(received.text(), "asked\nchild\n");
    assert.equal(received.exit?.case === "exit" && received.exit.value.code, 7);
    assert.deepEqual(await agent.exited, { code: 7, signal: null });
    assert.equal(agent.output.stdout, "asked\nchild\n");
  });

  it("a reader of workload output fails if it sends anything but acknowledgements", async () => {
    await using agent = await keeping("exec sleep 1000");
    const frames: [Parameters<ExecStream["send"]>[0], RegExp][] = [
      [{ case: "stdin", value: Buffer.from("x") }, /^stdin .*the workload shares the agent's standard input/],
      [{ case: "stdinClose", value: {} }, /^stdin_close .*the workload shares the agent's standard input/],
      [{ case: "resize", value: { cols: 80, rows: 24 } }, /^resize .*no terminal/],
      [{ case: "signal", value: { number: 15 } }, /^signal .*kill\(1\) with the pid/],
      [{ case: "forget", value: {} }, /^forget .*Lifecycle\.Stop/],
    ];
    for (const [frame, text] of frames) {
      using reader = await read(agent);
      reader.stream.send({ case: "ack", value: { stdoutOffset: 0n, stderrOffset: 0n } }).send(frame);
      const { code, reason, message } = await reader.stream.failure();
      assert.deepEqual([code, reason], [status.INVALID_ARGUMENT, "INVALID_FIELD"]);
      assert.match(message.replace(/^\d+ INVALID_ARGUMENT: /, ""), text);
    }
  });

  it("an invalid read of workload output fails with a reason", async () => {
    await using agent = await keeping("exec sleep 1000");
    const at = { workload: true, stdoutOffset: 0n };
    for (const [value, code, reason] of [
      [{ ...at, execId: "0".repeat(32) }, status.NOT_FOUND, "EXEC_UNKNOWN"],
      [{ ...at, stdoutOffset: 1n }, status.OUT_OF_RANGE, "EXEC_OFFSET_PAST_END"],
      [{ ...at, name: "web" }, status.INVALID_ARGUMENT, "INVALID_FIELD"],
      [{ workload: true }, status.INVALID_ARGUMENT, "INVALID_FIELD"],
    ] as const)
      await assert.rejects(attach(agent, value), { code, reason });
    const client = connect(agent);
    const readers = await Promise.all(Array.from({ length: 32 }, () => attach(agent, at, client)));
    await assert.rejects(attach(agent, at), { code: status.RESOURCE_EXHAUSTED, reason: "TOO_MANY_WATCHERS" });
    for (const reader of readers) reader[Symbol.dispose]();
    client.close();
    await using inheriting = await startAgent({ process: { args: ["sleep", "1000"], output: { inherit: {} } } });
    const notKept = { code: status.FAILED_PRECONDITION, reason: "WORKLOAD_OUTPUT_NOT_KEPT" };
    await assert.rejects(attach(inheriting, at), { ...notKept, message: /"output": \{"keep": \{\}\}/ });
  });

  it("reading workload output does not count as user activity", async () => {
    await using agent = await keeping("echo up; exec sleep 1000");
    using client = clientOf(agent);
    const before = (await client.health()).lastUserActivity;
    using reader = await read(agent);
    await readUntil(reader, "up\n");
    assert.deepEqual((await client.health()).lastUserActivity, before);
    reader[Symbol.dispose]();
    assert.deepEqual((await client.health()).lastUserActivity, before);
  });
});
