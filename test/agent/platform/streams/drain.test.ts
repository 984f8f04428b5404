import assert from "node:assert/strict";
import { closeSync } from "node:fs";
import { test, type TestContext } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import {
  BufferPool,
  type ByteReceiver,
  type ChildProcess,
  type SpawnBlock,
  type StdioPlan,
} from "../../../../src/agent/domain/index.ts";
import type { Addon } from "../../../../src/agent/native/index.ts";
import { FdSource, STREAM_BUFFERS } from "../../../../src/agent/platform/streams/source.ts";
import { pipe } from "../../../fixtures/pipe.ts";
import { addon, discard, processes, shell } from "../../../fixtures/spawning.ts";

const PIPES: StdioPlan = { kind: "pipes", stdin: false };
const TERMINAL: StdioPlan = { kind: "terminal", cols: 80, rows: 24 };
const PLANS: readonly (readonly [string, StdioPlan])[] = [
  ["pipes", PIPES],
  ["a terminal", TERMINAL],
];
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

for (const [name, stdio] of PLANS) {
  test(`on ${name}, what the leader wrote reaches a receiver that takes it late, though others hold the stream`, async () => {
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

test("a pipe that is still held at the exit is looked at again, and complete where its last writer goes", async (t) => {
  assert.deepEqual(await drainOf(t, [false, false, true]), { complete: true, asked: 3 });
});

test("and incomplete after the last look", async (t) => {
  assert.deepEqual(await drainOf(t, []), { complete: false, asked: 6 });
});

test("it is looked at for as long as children start, and once more when none does", async (t) => {
  const { promise: settled, resolve } = Promise.withResolvers<void>();
  const onLook = (look: number): void => {
    if (look === 20) resolve();
  };
  assert.deepEqual(await drainOf(t, [], { settled, onLook }), { complete: false, asked: 22 });
  const late = [...Array<boolean>(15).fill(false), true];
  const never = new Promise<void>(() => {});
  assert.deepEqual(await drainOf(t, late, { settled: never, onLook: () => {} }), { complete: true, asked: 16 });
});
