import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { MemoryKeeper } from "../../../src/agent/platform/index.ts";
import { awake, until } from "../../fixtures/awake.ts";

const LOOK_AFTER_MS = 50;
const NEVER_MS = 3_600_000;
const MIB = 2 ** 20;

/** A keeper, the resident size each time that it gave memory back, and its calls about program pages. */
function keeper(lookAfterMs = LOOK_AFTER_MS, snapshotLimitMs = NEVER_MS) {
  const trimmed: number[] = [];
  const pages: string[] = [];
  let wake = (): void => {};
  const trimHeap = (): number => {
    trimmed.push(process.memoryUsage.rss());
    setImmediate(() => wake());
    return 1;
  };
  const next = (): Promise<void> => new Promise((resolve) => (wake = resolve));
  const program = { release: (): number => pages.push("given back") };
  return { memory: new MemoryKeeper({ trimHeap }, program, lookAfterMs, snapshotLimitMs), trimmed, pages, next };
}

const nothing = (): Promise<void> => Promise.resolve();

/** A function of its own: a suspended one would keep alive what its registers still hold. */
function leaveGarbage(sizeMib: number): void {
  const garbage = Array.from({ length: sizeMib }, () => new Uint8Array(MIB).fill(1));
  assert.equal(garbage.length, sizeMib);
}

const FRESH_BYTES = 256 * MIB;

/**
 * Memory that makes the resident size grow, whatever earlier tests have freed: the C library maps blocks of more than
 * 32 MiB again (mallopt(3), M_MMAP_THRESHOLD), and would take smaller ones from what it holds.
 */
function fresh(): Uint8Array<ArrayBuffer> {
  return new Uint8Array(FRESH_BYTES).fill(1);
}

// V8's memory, not the resident size: whether the C library returns a freed block at once depends on earlier ones.
test("MemoryKeeper frees garbage once the agent is idle", async () => {
  const { memory, trimmed, next } = keeper();
  const beforeBytes = process.memoryUsage().arrayBuffers;
  leaveGarbage(64);
  const givenBack = next();
  memory.onActivity();
  await awake(givenBack);
  assert.equal(trimmed.length, 1);
  // V8 frees collected memory on a thread of its own.
  for (let looks = 0; process.memoryUsage().arrayBuffers > beforeBytes + 32 * MIB; looks++) {
    assert.ok(looks < 10_000, `${process.memoryUsage().arrayBuffers} bytes are still held, ${beforeBytes} were before`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
});

test("MemoryKeeper frees the garbage of a call that does not end", async () => {
  const { memory, trimmed, next } = keeper();
  const freed = next();
  memory.onCalls(1);
  leaveGarbage(64);
  await awake(freed);
  assert.equal(trimmed.length, 1);
});

test("MemoryKeeper releases memory only when the agent is idle and memory has grown", async () => {
  const { memory, trimmed, next } = keeper();
  const givenBack = next();
  memory.onActivity();
  const busyUntil = performance.now() + 4 * LOOK_AFTER_MS;
  while (performance.now() < busyUntil) {
    leaveGarbage(1);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(trimmed.length, 0);
  }
  await awake(givenBack);
  memory.onActivity();
  await awake(new Promise((resolve) => setTimeout(resolve, 4 * LOOK_AFTER_MS)));
  assert.equal(trimmed.length, 1);
});

test("MemoryKeeper releases the agent's program pages once, at the first idle period", async () => {
  const { memory, pages, next } = keeper();
  for (let round = 0; round < 2; round++) {
    leaveGarbage(16);
    const rested = next();
    memory.onActivity();
    // If nothing has grown since, no second rest gives anything back.
    const noMore = new Promise((resolve) => setTimeout(resolve, 8 * LOOK_AFTER_MS));
    await awake(round === 0 ? rested : Promise.race([rested, noMore]));
    assert.deepEqual(pages, ["given back"]);
  }
});

test("MemoryKeeper releases the agent's program pages only when no call is running", async () => {
  const { memory, trimmed, pages, next } = keeper();
  memory.onCalls(1);
  let rested = next();
  memory.onActivity();
  await awake(rested);
  assert.deepEqual(pages, []);
  memory.onCalls(0);
  await until(() => pages.length > 0, "the pages are given back");
  assert.deepEqual(pages, ["given back"]);
  rested = next();
  leaveGarbage(16);
  memory.onCalls(1);
  await memory.beforeSnapshot(nothing);
  await awake(rested);
  assert.ok(trimmed.length >= 2);
});

test("MemoryKeeper releases a call's memory after the call has ended", async () => {
  const { memory, trimmed, next } = keeper();
  const held = [fresh()];
  memory.onCalls(1);
  memory.onActivity();
  await awake(next());
  held.pop();
  const again = next();
  memory.onCalls(0);
  await awake(again);
  assert.equal(trimmed.length, 2);
});

test("at the next idle period, MemoryKeeper releases memory that V8 freed late", async () => {
  const { memory, trimmed, next } = keeper();
  const freedLate = fresh();
  memory.onActivity();
  await awake(next());
  freedLate.buffer.transfer(0);
  memory.onCalls(1);
  const held = fresh();
  const again = next();
  memory.onCalls(0);
  await awake(again);
  assert.equal(trimmed.length, held.length / FRESH_BYTES + 1);
});

test("beforeSnapshot releases garbage and the agent's program pages before calling `rehearse`", async () => {
  const { memory, trimmed, pages } = keeper();
  memory.onCalls(1);
  await memory.beforeSnapshot(() => {
    assert.equal(trimmed.length, 1);
    return Promise.resolve(void pages.push("rehearsed"));
  });
  assert.deepEqual(pages, ["given back", "rehearsed"]);
});

test("beforeSnapshot() prevents the release of memory until a call has ended", async () => {
  const { memory, trimmed, next } = keeper();
  memory.onCalls(1);
  await memory.beforeSnapshot(nothing);
  memory.onCalls(0);
  memory.onActivity();
  const grown = fresh();
  await awake(new Promise((resolve) => setTimeout(resolve, 8 * LOOK_AFTER_MS)));
  assert.equal(trimmed.length, 1);
  const rested = next();
  for (const running of [1, 0]) memory.onCalls(running);
  await awake(rested);
  assert.deepEqual([trimmed.length, grown.length], [2, FRESH_BYTES]);
});

test("if no call follows beforeSnapshot, memory is released at the time limit", async () => {
  const limitMs = 10 * LOOK_AFTER_MS;
  const { memory, trimmed } = keeper(LOOK_AFTER_MS, limitMs);
  memory.onCalls(1);
  await memory.beforeSnapshot(nothing);
  const beganMs = performance.now();
  memory.onCalls(0);
  const grown = fresh();
  await until(() => trimmed.length > 1, "memory is given back");
  // A timer's clock has whole milliseconds.
  assert.ok(performance.now() - beganMs >= limitMs - 1);
  assert.equal(grown.length, FRESH_BYTES);
});

/**
 * Runs `begin` in a process of its own, then calls a function until V8 has optimized it, at most `tries` times a
 * thousand calls. Then runs `goOn` and repeats that. Returns whether V8 optimized it, each time.
 */
function optimizes(begin: string, goOn: string, tries = 60): boolean[] {
  const script = `
    import { MemoryKeeper } from ${JSON.stringify(import.meta.resolve("../../../src/agent/platform/index.ts"))};
    const memory = new MemoryKeeper({ trimHeap: () => 1 }, undefined);
    const sum = (a, b) => { let all = 0; for (let i = 0; i < 100; i++) all += a * i + b; return all; };
    const OPTIMIZED = 8;
    function isOptimized() {
      for (let tries = 0; tries < ${tries}; tries++) {
        for (let i = 0; i < 1_000; i++) sum(i, 1);
        if ((%GetOptimizationStatus(sum) & OPTIMIZED) !== 0) return true;
      }
      return false;
    }
    %NeverOptimizeFunction(isOptimized);
    ${begin}
    const results = [isOptimized()];
    ${goOn}
    console.log(JSON.stringify([...results, isOptimized()]));
    process.exit();`;
  const args = ["--allow-natives-syntax", "--no-concurrent-recompilation", "--input-type=module", "--eval", script];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  assert.notEqual(stdout, "", stderr);
  return JSON.parse(stdout) as boolean[];
}

const ANNOUNCED = "memory.onCalls(1); await memory.beforeSnapshot(() => Promise.resolve()); memory.onCalls(0);";

test("beforeSnapshot disables V8's optimizer until many calls or one large call arrive", () => {
  const calls = (count: number): string =>
    `for (let i = 0; i < ${count}; i++) { memory.onCalls(1); memory.onCalls(0); }`;
  assert.deepEqual(optimizes("", ""), [true, true], "without a snapshot");
  assert.deepEqual(optimizes(ANNOUNCED, calls(10)), [false, false], "a node's first calls");
  assert.deepEqual(optimizes(ANNOUNCED, calls(40)), [false, true], "more calls");
  assert.deepEqual(optimizes(ANNOUNCED, "memory.streaming(true);"), [false, true], "a large call");
});

test("beforeSnapshot releases no memory while another call is running", async () => {
  const { memory, trimmed, pages } = keeper();
  memory.onCalls(1);
  memory.onCalls(2);
  await memory.beforeSnapshot(nothing);
  memory.onCalls(1);
  memory.onCalls(0);
  await awake(new Promise((resolve) => setTimeout(resolve, LOOK_AFTER_MS / 2)));
  assert.equal(trimmed.length, 0);
  assert.deepEqual(pages, []);
});
