import assert from "node:assert/strict";
import { closeSync, constants, openSync, readSync } from "node:fs";
import { test, type TestContext } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import {
  BufferPool,
  type ByteReceiver,
  type ChildProcess,
  type SpawnBlock,
  type StdioPlan,
} from "../../../src/agent/domain/index.ts";
import type { Addon } from "../../../src/agent/native/index.ts";
import { FdSink } from "../../../src/agent/platform/streams/sink.ts";
import { FdSource, STREAM_BUFFERS } from "../../../src/agent/platform/streams/source.ts";
import { WidePipes } from "../../../src/agent/platform/streams/wide-pipes.ts";
import { addon, bytes, discard, launch, pipe, processes, request, run, shell } from "../../fixtures/spawning.ts";

const PIPES: StdioPlan = { kind: "pipes", stdin: true };
const TERMINAL: StdioPlan = { kind: "terminal", cols: 80, rows: 24 };
/** What a terminal takes without a reader too: 8 KiB, and 4 KiB in its line discipline. */
const IN_FLIGHT_BYTES = 9_000;
/** Chunks that a source passes on before one has to be released. */
const HELD_CHUNKS = 4;

/** Holds every chunk until `releaseAll`, and from then on none. */
class LateReceiver implements ByteReceiver {
  readonly #held: (() => void)[] = [];
  #holding = true;
  /** Resolves when it holds as many chunks as it may. */
  readonly full: PromiseWithResolvers<void> = Promise.withResolvers();
  sizeBytes = 0;
  heldChunks = 0;

  chunk(piece: Uint8Array, release: () => void): void {
    this.sizeBytes += piece.length;
    if (!this.#holding) {
      release();
      return;
    }
    this.heldChunks++;
    if (this.heldChunks === HELD_CHUNKS) this.full.resolve();
    this.#held.push(release);
  }

  end(): void {}

  releaseAll(): void {
    this.#holding = false;
    for (const release of this.#held.splice(0)) release();
  }
}

/** Starts a child with a late receiver of its output. Disposing kills its tree and releases it. */
async function launchLate(of: SpawnBlock): Promise<{ child: ChildProcess; late: LateReceiver } & AsyncDisposable> {
  const child = await processes.spawn(of);
  const late = new LateReceiver();
  child.stdout?.start(late);
  return { child, late, [Symbol.asyncDispose]: () => discard(child) };
}

for (const stdio of [PIPES, TERMINAL]) {
  const name = stdio === PIPES ? "pipes" : "a terminal";
  test(`a late receiver gets all the leader's output on ${name}`, async () => {
    await using running = await launchLate(
      shell(`trap '' HUP; sleep 1011 & head -c ${IN_FLIGHT_BYTES} /dev/zero`, { stdio }),
    );
    const { child, late } = running;
    await child.ended;
    let drained = false;
    const drain = child.stdout?.drain().then((complete) => {
      drained = true;
      return complete;
    });
    for (let turn = 0; turn < 20; turn++) await immediate();
    assert.ok(late.heldChunks <= HELD_CHUNKS);
    // With all output in held chunks, the read that would find nothing more is still to come.
    assert.ok(!drained || late.sizeBytes === IN_FLIGHT_BYTES);
    late.releaseAll();
    assert.equal(await drain, false);
    assert.equal(late.sizeBytes, IN_FLIGHT_BYTES);
  });
}

/** The drain of a pipe without writers, which the kernel reports only where `answers` is true, look by look. */
async function drainOf(
  t: TestContext,
  answers: readonly boolean[],
  starts?: { readonly settled: Promise<void>; readonly onLook: (look: number) => void },
): Promise<{ complete: boolean; asked: number }> {
  let asked = 0;
  const answer = (): boolean => {
    starts?.onLook(asked);
    return answers[asked++] ?? false;
  };
  const calls = { hungUp: (fd: number) => addon.hungUp(fd) && answer() };
  const delayed: Addon = Object.assign(Object.create(addon) as Addon, calls);
  const [ours, theirs] = pipe(true);
  closeSync(theirs);
  const source = new FdSource(delayed, new BufferPool(STREAM_BUFFERS), "pipe", ours, () => starts?.settled);
  t.after(() => source.close());
  source.start({ chunk: (_bytes, release) => release(), end: () => {} });
  return { complete: await source.drain(), asked };
}

test("drain() checks at most six times whether background writers closed a pipe", async (t) => {
  assert.deepEqual(await drainOf(t, [false, false, true]), { complete: true, asked: 3 });
  assert.deepEqual(await drainOf(t, []), { complete: false, asked: 6 });
});

test("drain() keeps checking a pipe while other children are starting", async (t) => {
  const { promise: settled, resolve } = Promise.withResolvers<void>();
  const onLook = (look: number): void => {
    if (look === 20) resolve();
  };
  assert.deepEqual(await drainOf(t, [], { settled, onLook }), { complete: false, asked: 22 });
  const late = [...Array<boolean>(15).fill(false), true];
  const never = new Promise<void>(() => {});
  assert.deepEqual(await drainOf(t, late, { settled: never, onLook: () => {} }), { complete: true, asked: 16 });
});

test("reading a flood of output yields to the event loop after each chunk", async () => {
  const child = await processes.spawn(request(["/usr/bin/head", "-c", "5000000", "/dev/zero"], { stdio: TERMINAL }));
  const end = Promise.withResolvers<void>();
  let sizeBytes = 0;
  let chunksTogether = 0;
  let mostTogether = 0;
  child.stdout?.start({
    chunk: (piece, release) => {
      sizeBytes += piece.length;
      mostTogether = Math.max(mostTogether, ++chunksTogether);
      // Runs before any other callback of the event loop does.
      queueMicrotask(() => (chunksTogether = 0));
      release();
    },
    end: () => end.resolve(),
  });
  await child.ended;
  await child.stdout?.drain();
  await end.promise;
  assert.equal(sizeBytes, 5_000_000);
  assert.equal(mostTogether, 1);
  await discard(child);
});

test("a write to a child resolves when either side closes the pipe", async () => {
  await using running = await launch(shell("exec 0<&-; echo closed; sleep 1020", { stdio: PIPES }));
  await running.stdout.until(/closed/);
  await running.child.stdin?.write(Buffer.alloc(1_000_000));
  await running.child.stdin?.write(bytes("more"));

  for (const give of [(child: ChildProcess) => child.stdin?.close(), (child: ChildProcess) => child.signal(9)]) {
    await using deaf = await launch(request(["/bin/sleep", "1021"], { stdio: PIPES }));
    const write = deaf.child.stdin?.write(Buffer.alloc(1_000_000));
    give(deaf.child);
    await write;
  }
});

test("closing the input of a raw terminal sends no end-of-file character", async () => {
  const terminal = addon.openTerminal(80, 24);
  assert.ok(typeof terminal === "object");
  const [master, slave] = terminal;
  const ready = await run(request(["/bin/stty", "raw", "-echo", "-F", `/proc/${process.pid}/fd/${slave}`]));
  assert.equal(ready.stderr.toString(), "");
  const sink = new FdSink(addon, "terminal", addon.duplicate(master));
  await sink.write(bytes("a"));
  sink.end();
  addon.write(master, bytes("b"), 0, 1);
  const typed = Buffer.alloc(2);
  for (let at = 0; at < 2;) at += readSync(slave, typed, at, 2 - at, null);
  assert.equal(typed.toString(), "ab");
  sink.close();
  closeSync(master);
  closeSync(slave);
});

const USUAL_BYTES = 64 * 1024;
const WIDE_BYTES = 256 * 1024;
const MUCH = Buffer.alloc(1_000_000);

/** Writes as much as the pipe takes now. Returns the number of bytes. */
function fill(writer: number): number {
  const fd = openSync(`/proc/self/fd/${writer}`, constants.O_WRONLY | constants.O_NONBLOCK);
  const count = addon.write(fd, MUCH, 0, MUCH.length);
  closeSync(fd);
  return count;
}

test("the input pipe of a stalled command holds 256 KiB", () => {
  const [ours, theirs] = pipe(false);
  const sink = new FdSink(addon, "pipe", ours);
  void sink.write(MUCH);
  assert.equal(addon.bytesAvailable(theirs), WIDE_BYTES);
  sink.close();
  closeSync(theirs);
});

test("a filled output pipe is widened to 256 KiB", async () => {
  const [ours, theirs] = pipe(true);
  assert.equal(fill(theirs), USUAL_BYTES);
  const source = new FdSource(addon, new BufferPool(STREAM_BUFFERS), "pipe", ours);
  // The chunks are not released: the source reads four of them, and the rest stays in the pipe.
  await new Promise<void>((resolve) => source.start({ chunk: () => resolve(), end: () => {} }));
  assert.equal(fill(theirs), WIDE_BYTES);
  source.close();
  closeSync(theirs);
});

test("WidePipes widens at most 32 pipes until forget() releases one", () => {
  const pipes = Array.from({ length: 33 }, () => pipe(true));
  const wide = new WidePipes(addon);
  const widened = pipes.map(([fd]) => wide.widen(fd));
  assert.deepEqual(widened, [...Array.from({ length: 32 }, () => true), false]);
  const [[first], [last]] = [pipes.at(0) ?? [-1], pipes.at(-1) ?? [-1]];
  assert.equal(wide.widen(first), false);
  wide.forget(first);
  assert.equal(wide.widen(last), true);
  for (const fd of pipes.flat()) closeSync(fd);
});
