import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryKeeper } from "../../src/platform/index.ts";

const LOOK_AFTER_MS = 50;
const MIB = 2 ** 20;

/** A keeper, and the resident size each time that it gave memory back. */
function keeper(): { readonly memory: MemoryKeeper; readonly trimmed: number[]; readonly next: () => Promise<void> } {
  const trimmed: number[] = [];
  let wake = (): void => {};
  const trimHeap = (): number => {
    trimmed.push(process.memoryUsage.rss());
    wake();
    return 1;
  };
  const next = (): Promise<void> => new Promise((resolve) => (wake = resolve));
  return { memory: new MemoryKeeper({ trimHeap }, LOOK_AFTER_MS), trimmed, next };
}

/** The keeper's own timer does not keep the process alive. */
async function awake<Value>(promise: Promise<Value>): Promise<Value> {
  const timer = setInterval(() => undefined, 1_000);
  try {
    return await promise;
  } finally {
    clearInterval(timer);
  }
}

test("once work is over, its garbage is given back", async () => {
  const { memory, trimmed, next } = keeper();
  let garbage: Uint8Array[] | undefined = Array.from({ length: 64 }, () => new Uint8Array(MIB).fill(1));
  const fullBytes = process.memoryUsage.rss();
  assert.equal(garbage.length, 64);
  garbage = undefined;
  const givenBack = next();
  memory.worked();
  await awake(givenBack);
  assert.equal(trimmed.length, 1);
  // V8 frees what it has collected on a thread of its own.
  while (process.memoryUsage.rss() > fullBytes - 32 * MIB) await new Promise((resolve) => setTimeout(resolve, 10));
});

test("nothing is done while there is work, and nothing again where nothing has grown", async () => {
  const { memory, trimmed, next } = keeper();
  const givenBack = next();
  memory.worked();
  const busyUntil = performance.now() + 4 * LOOK_AFTER_MS;
  let looks = 0;
  while (performance.now() < busyUntil) {
    const spinUntil = performance.now() + LOOK_AFTER_MS / 2;
    while (performance.now() < spinUntil) looks++;
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(trimmed.length, 0, `after ${looks} turns`);
  }
  await awake(givenBack);
  memory.worked();
  await awake(new Promise((resolve) => setTimeout(resolve, 4 * LOOK_AFTER_MS)));
  assert.equal(trimmed.length, 1);
});

test("what the start has left elsewhere is given back at the first rest, once", async () => {
  let rests = 0;
  let wake = (): void => {};
  const next = (): Promise<void> => new Promise((resolve) => (wake = resolve));
  const trimHeap = (): number => {
    setImmediate(() => wake());
    return 1;
  };
  const memory = new MemoryKeeper({ trimHeap }, LOOK_AFTER_MS, () => rests++);
  for (let round = 0; round < 2; round++) {
    const filled = Array.from({ length: 16 }, () => new Uint8Array(MIB).fill(1));
    assert.equal(filled.length, 16);
    const rested = next();
    memory.worked();
    await awake(Promise.race([rested, new Promise((resolve) => setTimeout(resolve, 8 * LOOK_AFTER_MS))]));
    assert.equal(rests, 1);
  }
});
