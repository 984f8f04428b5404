import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { afterEach, describe, it } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { type ExecFrame, ExecFrameSchema, ExecWhenFull } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { connect, type ExecStream } from "../../fixtures/exec-stream.ts";
import {
  attach,
  endAll,
  endExec,
  keep,
  keptCommand,
  type Received,
  receiveAll,
  untilKept,
} from "../../fixtures/kept-commands.ts";
import { RawHttp2, FRAME } from "../../fixtures/raw-http2.ts";
import { seededRandom } from "../../fixtures/seeded-random.ts";
import { memoryOf } from "../../fixtures/proc.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const BLOCK = ExecWhenFull.BLOCK;

const agent = forAllTests(await startAgent());
afterEach(() => endAll(agent));

function shell(line: string): string[] {
  return ["sh", "-c", line];
}

function sha256(parts: Iterable<Uint8Array>): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex");
}

/** Acknowledges what has come. */
function acknowledge(stream: ExecStream, { stdout, stderr }: Received): void {
  stream.send({ case: "ack", value: { stdoutOffset: BigInt(stdout.end), stderrOffset: BigInt(stderr.end) } });
}

/** Numbered lines: what `seq` prints. */
function lines(last: number): Buffer {
  return Buffer.from(Array.from({ length: last }, (_, index) => `${index + 1}\n`).join(""));
}

describe("the buffer of a kept command", () => {
  it("with a full buffer, a kept command drops its oldest output and reports the gap", async () => {
    const keeping = { name: "slow", bufferBytes: 256 * KIB };
    using first = await keep(agent, { args: ["seq", "2000000"], keep: keeping });
    // The command ends although nobody reads.
    const over = await untilKept(agent, "slow", (exec) => exec?.exit?.outputComplete === true);
    assert.equal(over?.heldBytes, 256n * 1024n, "no byte is dropped before another takes its place");
    const all = lines(2_000_000);
    const positions: [at: number, bytes: Uint8Array][] = [];
    const received = await receiveAll(first, ({ stdout }, frame) => {
      if (frame.case === "stdout") positions.push([stdout.end - frame.value.length, frame.value]);
    });
    assert.ok(received.stdout.gapBytes > 0);
    assert.equal(received.stdout.end, all.length);
    for (const [at, bytes] of positions) assert.ok(all.subarray(at, at + bytes.length).equals(bytes), `at ${at}`);
  });

  it("with `when_full: BLOCK`, a full buffer pauses a kept command without loss", async () => {
    const keeping = { name: "block", bufferBytes: 100_000, whenFull: BLOCK };
    const first = await keep(agent, { args: shell("seq 500000; seq 1000 >&2"), keep: keeping });
    first[Symbol.dispose]();
    const full = await untilKept(agent, "block", (exec) => exec?.heldBytes === 100_000n);
    assert.deepEqual([full?.exit, full?.stdoutOffset], [undefined, 100_000n]);
    // A call that reads and acknowledges nothing gets what is buffered, and the command stops.
    const second = await attach(agent, { name: "block", stdoutOffset: 0n });
    for (let bytes = 0; bytes < 100_000;) {
      const frame = await second.stream.next();
      if (frame?.case === "stdout") bytes += frame.value.length;
    }
    second[Symbol.dispose]();
    assert.equal((await keptCommand(agent, "block"))?.stdoutOffset, 100_000n);
    using third = await attach(agent, { name: "block", stdoutOffset: 0n, stderrOffset: 0n });
    const received = await receiveAll(third, (sofar) => acknowledge(third.stream, sofar));
    assert.deepEqual([received.stdout.gapBytes, received.stderr.gapBytes], [0, 0]);
    assert.equal(sha256(received.stdout.chunks), sha256([lines(500_000)]));
    assert.equal(sha256(received.stderr.chunks), sha256([lines(1_000)]));
    assert.ok(received.exit?.case === "exit" && received.exit.value.outputComplete);
  });

  it("with `when_full: BLOCK`, the exit frame follows all output", async () => {
    const keeping = { name: "full", bufferBytes: 4 * KIB, whenFull: BLOCK };
    const first = await keep(agent, { args: shell("exec yes"), keep: keeping });
    first[Symbol.dispose]();
    await untilKept(agent, "full", (exec) => exec?.heldBytes === 4n * 1024n);
    const ended = await endExec(agent, { name: "full" });
    assert.deepEqual([ended.exit?.signal, ended.exit?.outputComplete, ended.forgotten], [15, false, false]);
    using second = await attach(agent, { name: "full", stdoutOffset: 0n });
    const received = await receiveAll(second, (sofar) => acknowledge(second.stream, sofar));
    assert.match(received.text(), /^(?:y\n)+y?$/);
    assert.equal(received.stdout.gapBytes, 0);
    assert.ok(received.stdout.end > 4 * KIB);
    assert.ok(received.exit?.case === "exit" && received.exit.value.outputComplete);
  });

  it("with `when_full: BLOCK`, 16 MiB pass through a kept command unchanged", async () => {
    const keeping = { name: "pipe", bufferBytes: 64 * KIB, whenFull: BLOCK };
    using first = await keep(agent, { args: ["cat"], stdin: true, keep: keeping });
    const chunk = seededRandom(3).bytes(32 * KIB);
    const total = 512;
    let sent = 0;
    let taken = 0;
    const feed = (): void => {
      while (sent < total && sent * chunk.length - taken <= 224 * KIB - 7 * 256) {
        first.stream.stdin(chunk);
        sent++;
      }
    };
    feed();
    const received = await receiveAll(first, (sofar, frame) => {
      if (frame.case === "stdinAck") {
        taken = Number(frame.value.offset);
        if (taken === total * chunk.length) first.stream.send({ case: "stdinClose", value: {} });
        feed();
      } else acknowledge(first.stream, sofar);
    });
    assert.equal(sha256(received.stdout.chunks), sha256(Array.from({ length: total }, () => chunk)));
  });

  it("a kept command's buffered input stays bounded across many attach calls", async () => {
    using first = await keep(agent, { args: ["sleep", "1000"], stdin: true, keep: { name: "greedy" } });
    const client = connect(agent);
    const earlier = memoryOf(agent.pid).ownBytes;
    for (let call = 0; call < 30; call++) {
      const next = await attach(agent, { name: "greedy", fromNow: true }, client);
      for (let frame = 0; frame < 4; frame++) next.stream.stdin(Buffer.alloc(MIB));
    }
    const exec = await keptCommand(agent, "greedy");
    assert.ok(exec !== undefined && exec.stdinOffset <= 2n * BigInt(MIB), `${exec?.stdinOffset} bytes were taken`);
    const grown = memoryOf(agent.pid).ownBytes - earlier;
    assert.ok(grown < 48 * MIB, `grew by ${grown} bytes`);
    assert.equal(first.started.stdin, true);
    client.close();
  });

  it("a stalled client blocks neither the kept command nor the next client", async () => {
    using dead = await RawHttp2.dial(agent, { windowBytes: 0 });
    const start = { args: shell("exec yes"), keep: { name: "dead", bufferBytes: MIB } };
    const message = toBinary(ExecFrameSchema, create(ExecFrameSchema, { frame: { case: "start", value: start } }));
    dead.call("Exec", agent.token, message, false);
    await dead.next(({ type }) => type === FRAME.headers, "headers");
    dead.stopReading();
    using next = await attach(agent, { name: "dead", fromNow: true });
    let bytes = 0;
    while (bytes < 4 * MIB) {
      const frame: ExecFrame["frame"] | undefined = await next.stream.next();
      if (frame?.case === "stdout") bytes += frame.value.length;
    }
  });
});
