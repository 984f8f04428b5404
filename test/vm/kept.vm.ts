import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { Readable } from "node:stream";
import { after, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import {
  type GuestClient,
  type KeptOptions,
  type KeptPosition,
  type KeptProcess,
  restoreSequence,
} from "../../src/node/client/index.ts";
import { Changes, until } from "../fixtures/awake.ts";
import { optionsFor } from "../fixtures/guest-client.ts";
import { Stage } from "./cases/stage.ts";

const STANDBYS = 3;
const FORKS = 2;
const REACH_MS = 600_000;
/** Makes the build end. */
const STOP_FILE = "/run/build-stop";
/** Prints a numbered line on each stream, again and again. */
const BUILD = `i=0; while ! [ -e ${STOP_FILE} ]; do echo out $i; echo err $i >&2; i=$((i+1)); busybox usleep 20000; done; exit 7`;
/** The same of the workload, without end. */
const WORKLOAD = "i=0; while :; do echo out $i; echo err $i >&2; i=$((i+1)); busybox usleep 250000; done";
/** Bytes of input in a piece, with pauses between pieces, so that a copy of it stays small. */
const PIECE_BYTES = 4 * 1024;
const PIECE_MS = 20;

/** Input of a command: random pieces until it is stopped, and a copy of them. */
class Source {
  readonly hash = createHash("sha256");
  #isStopped = false;

  stop(): void {
    this.#isStopped = true;
  }

  async *pieces(): AsyncGenerator<Buffer> {
    while (!this.#isStopped) {
      const piece = randomBytes(PIECE_BYTES);
      this.hash.update(piece);
      yield piece;
      await pause(PIECE_MS);
    }
  }
}

/** Collects a stream. */
class Sink {
  readonly #parts: Buffer[] = [];
  readonly #changes = new Changes();

  constructor(stream: Readable, before: Buffer = Buffer.alloc(0)) {
    this.#parts.push(before);
    stream.on("data", (bytes: Buffer) => {
      this.#parts.push(bytes);
      this.#changes.announce();
    });
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#parts);
  }

  /** Resolves when the text has arrived. */
  until(text: string): Promise<void> {
    return this.#changes.holds(() => this.bytes.includes(text));
  }
}

/** Fails unless the lines are `word 0`, `word 1` and so on to the last. */
function assertNumbered(bytes: Buffer, word: string): void {
  const lines = bytes.toString().trimEnd().split("\n");
  assert.deepEqual(
    lines.filter((line, number) => line !== `${word} ${number}`),
    [],
  );
  assert.ok(lines.length > STANDBYS, `${lines.length} lines`);
}

async function sha256InGuest(client: GuestClient, path: string): Promise<string> {
  const { stdout } = await client.run(["/bin/busybox", "sha256sum", path]);
  return stdout.split(" ")[0] ?? "";
}

const start = (client: GuestClient, name: string, script: string, options?: KeptOptions): KeptProcess<Buffer> =>
  client.start(["/bin/busybox", "sh", "-c", script], { stdin: true, encoding: "buffer", keep: { name }, ...options });

/** Whole lines: a client that leaves a workload that continues to write may leave in the middle of one. */
function wholeLines(bytes: Buffer): Buffer {
  return bytes.subarray(0, bytes.lastIndexOf("\n") + 1);
}

describe("kept commands, and the workload's kept output", () => {
  const stage = new Stage({ process: { args: ["/bin/busybox", "sh", "-c", WORKLOAD], output: { keep: {} } } });
  /** What a reader of the workload's output has, and where it was left. */
  let said: { readonly at: KeptPosition; readonly out: Buffer; readonly err: Buffer } | undefined;
  after(() => stage.end());

  test("kept commands continue through three standbys with every byte delivered once", async (t) => {
    await stage.boot();
    using client = stage.client();
    const events = new Map<string, number>();
    const { certificates, token } = stage.guest;
    const options: KeptOptions = {
      failOnGap: true,
      resume: {
        timeoutMs: REACH_MS,
        connectOptions: () => optionsFor({ port: stage.machine.agentPort, certificates, token }),
      },
      onEvent: ({ kind }) => events.set(kind, (events.get(kind) ?? 0) + 1),
    };
    // Nobody reads this command, which holds up nothing else.
    const unread = { name: "unread", bufferBytes: 4096, whenFull: "block" } as const;
    await client.start(["/bin/busybox", "yes"], { keep: unread }).detach();
    const build = start(client, "build", BUILD, options);
    const [out, err] = [new Sink(build.stdout), new Sink(build.stderr)];
    const terminal = { cols: 80, rows: 24 };
    const shell = client.start(["/bin/busybox", "sh"], {
      encoding: "buffer",
      terminal,
      keep: { name: "shell" },
      ...options,
    });
    const screen = new Sink(shell.stdout);
    const keep = { name: "pipe", bufferBytes: 16 * 1024, whenFull: "block" } as const;
    const pipe = client.start(["/bin/busybox", "tee", "/tmp/copy"], {
      encoding: "buffer",
      stdin: true,
      keep,
      ...options,
    });
    const source = new Source();
    Readable.from(source.pieces()).pipe(pipe.stdin);
    const copied = createHash("sha256");
    pipe.stdout.on("data", (bytes: Buffer) => copied.update(bytes));
    pipe.stderr.resume();
    const workload = client.commands.workloadOutput({ encoding: "buffer", ...options, failOnGap: true });
    const [workloadOut, workloadErr] = [new Sink(workload.stdout), new Sink(workload.stderr)];
    await Promise.all([build.attached, shell.attached, pipe.attached, workload.attached]);

    for (let standby = 1; standby <= STANDBYS; standby++) {
      shell.stdin.write(`echo before-$((${standby} + 40))\n`);
      await screen.until(`before-${standby + 40}`);
      // Nobody waits for the answer: the snapshot may come before or after it.
      shell.stdin.write(`echo amidst-$((${standby} + 40))\n`);
      if (standby === STANDBYS) {
        // Frozen: what is held can be read all the same.
        using frozen = stage.client();
        assert.equal((await frozen.snapshots.prepare({ freezeMs: REACH_MS })).frozen, true);
        const held = frozen.commands.workloadOutput({ encoding: "buffer" });
        held.stderr.resume();
        await new Sink(held.stdout).until("out 0\n");
        await held.detach();
      }
      const snapshot = await stage.guest.snapshot(stage.machine, `standby-${standby}`);
      await stage.replaceMachine(() => stage.guest.start(snapshot));
      await restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS });
      shell.stdin.write(`echo after-$((${standby} + 40))\n`);
      await screen.until(`amidst-${standby + 40}`);
      await screen.until(`after-${standby + 40}`);
    }

    // What it has sent already may end the wait below before it is back.
    await until(() => (events.get("reconnected") ?? 0) >= 4 * STANDBYS, "all four are back");
    const lines = workloadOut.bytes.toString().split("\n").length;
    await workloadErr.until(`err ${lines + STANDBYS}\n`);
    said = { at: await workload.detach(), out: workloadOut.bytes, err: workloadErr.bytes };
    assertNumbered(wholeLines(said.out), "out");
    assertNumbered(wholeLines(said.err), "err");

    using other = stage.client();
    source.stop();
    await other.run(["/bin/busybox", "touch", STOP_FILE]);
    shell.stdin.write("exit 5\n");
    const [built, left, piped] = await Promise.all([build.wait(), shell.wait(), pipe.wait()]);
    assert.deepEqual([built.exitCode, left.exitCode, piped.exitCode], [7, 5, 0]);
    assertNumbered(out.bytes, "out");
    assertNumbered(err.bytes, "err");
    for (let standby = 1; standby <= STANDBYS; standby++) {
      for (const word of ["before", "amidst", "after"]) {
        // Once as typed, before the sum, and once as the answer.
        const answers = screen.bytes.toString().split(`${word}-${standby + 40}`).length - 1;
        assert.equal(answers, 1, `${word}-${standby + 40} in ${screen.bytes.toString()}`);
      }
    }
    const sent = source.hash.digest("hex");
    assert.equal(copied.digest("hex"), sent, "what came out of the pipe");
    assert.equal(await sha256InGuest(other, "/tmp/copy"), sent, "what its command got");
    assert.equal(events.get("gap"), undefined);
    assert.ok((events.get("reconnected") ?? 0) >= 4 * STANDBYS, `back ${events.get("reconnected")} times`);
    t.diagnostic(`${events.get("disconnected")} times lost, ${events.get("reconnected")} times back`);
    assert.deepEqual(
      (await other.commands.list()).map(({ name, exit }) => [name, exit]),
      [["unread", undefined]],
    );
    await other.commands.end("unread");
  });

  test("kept commands continue independently in two forks of one snapshot", async () => {
    const source = new Source();
    const stored = { out: Buffer.alloc(0), copied: Buffer.alloc(0) };
    let positions: readonly KeptPosition[] = [];
    const first = stage.client();
    {
      await first.run(["/bin/busybox", "rm", "-f", STOP_FILE, "/tmp/copy"]);
      const build = start(first, "build", BUILD);
      const out = new Sink(build.stdout);
      build.stderr.resume();
      const keep = { name: "pipe", bufferBytes: 16 * 1024, whenFull: "block" } as const;
      const pipe = first.start(["/bin/busybox", "tee", "/tmp/copy"], { encoding: "buffer", stdin: true, keep });
      const copied = new Sink(pipe.stdout);
      pipe.stderr.resume();
      const pieces = Readable.from(source.pieces());
      pieces.pipe(pipe.stdin, { end: false });
      await out.until("out 20\n");
      source.stop();
      await once(pieces, "end");
      // Resolves after everything that was written before.
      await new Promise((resolve) => {
        pipe.stdin.write("", resolve);
      });
      positions = [await build.detach(), await pipe.detach()];
      Object.assign(stored, { out: out.bytes, copied: copied.bytes });
    }
    first.close();
    const [buildAt, pipeAt] = positions;
    assert.ok(buildAt !== undefined && pipeAt !== undefined && said !== undefined);
    const { at, out: saidOut, err: saidErr } = said;
    const snapshot = await stage.guest.snapshot(stage.machine, "fork");

    const ends = new Set<string>();
    for (let fork = 0; fork < FORKS; fork++) {
      await stage.replaceMachine(() => stage.guest.start(snapshot));
      await restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS });
      using client = stage.client();
      const build: KeptProcess<Buffer> = client.commands.attach("build", {
        encoding: "buffer",
        ...buildAt,
        stderrOffset: 0,
      });
      const out = new Sink(build.stdout, stored.out);
      const err = new Sink(build.stderr);
      const pipe: KeptProcess<Buffer> = client.commands.attach("pipe", {
        encoding: "buffer",
        ...pipeAt,
        failOnGap: true,
      });
      const copied = new Sink(pipe.stdout, stored.copied);
      assert.equal((await pipe.attached).stdinOffset, pipeAt.stdinOffset);
      const workload = client.commands.workloadOutput({ encoding: "buffer", ...at, failOnGap: true });
      const [workloadOut, workloadErr] = [new Sink(workload.stdout, saidOut), new Sink(workload.stderr, saidErr)];
      const { stdoutEnd } = await workload.attached;
      await until(() => workloadOut.bytes.length > stdoutEnd, "the workload of the fork has written on");
      pipe.stdin.end(`fork ${fork}\n`);
      await client.run(["/bin/busybox", "touch", STOP_FILE]);
      assert.deepEqual([(await build.wait()).exitCode, (await pipe.wait()).exitCode], [7, 0]);
      assertNumbered(out.bytes, "out");
      assertNumbered(err.bytes, "err");
      await workload.detach();
      assertNumbered(wholeLines(workloadOut.bytes), "out");
      assertNumbered(wholeLines(workloadErr.bytes), "err");
      const sent = source.hash.copy().update(`fork ${fork}\n`).digest("hex");
      assert.equal(createHash("sha256").update(copied.bytes).digest("hex"), sent, "what came out of the pipe");
      assert.equal(await sha256InGuest(client, "/tmp/copy"), sent, "what its command got");
      ends.add(sent);
    }
    assert.equal(ends.size, FORKS);
  });
});
