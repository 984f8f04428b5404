import assert from "node:assert/strict";
import { describe, it, test } from "node:test";
import { setImmediate as yieldToEventLoop } from "node:timers/promises";
import { AgentError, Allowance, BufferPool, Mutex, type Share } from "../../../src/agent/domain/index.ts";

const FULL = 64 * 1024;
const TIGHT = 16 * 1024;
const SIZES = {
  fullBytes: FULL,
  tightBytes: TIGHT,
  tightAboveBytes: 4 * FULL,
  keptBytes: 3 * FULL,
  keptAtRestBytes: 0,
};

test("a buffer pool reuses released buffers, and frees them when its last user leaves", () => {
  for (const keptAtRestBytes of [0, FULL]) {
    const pool = new BufferPool({ ...SIZES, keptAtRestBytes });
    const leave = pool.enter();
    const borrowed = Array.from({ length: 5 }, () => pool.acquire());
    borrowed[0]?.release();
    assert.equal(pool.freeBytes, FULL);
    const again = pool.acquire();
    assert.equal(again.bytes, borrowed[0]?.bytes);
    for (const loan of borrowed) loan.release();
    assert.equal(pool.freeBytes, 3 * FULL);
    leave();
    assert.equal(pool.freeBytes, keptAtRestBytes);
    again.release();
    assert.deepEqual([pool.borrowedBytes, pool.freeBytes], [0, keptAtRestBytes]);
  }
});

test("a buffer that is released twice returns to the pool only once", () => {
  const pool = new BufferPool({ ...SIZES, keptAtRestBytes: FULL });
  const first = pool.acquire();
  pool.acquire();
  first.release();
  first.release();
  assert.deepEqual([pool.borrowedBytes, pool.freeBytes], [FULL, FULL]);
  assert.notEqual(pool.acquire().bytes, pool.acquire().bytes);
});

test("a buffer pool serves a small request with a small buffer, not a pooled one", () => {
  const pool = new BufferPool({ ...SIZES, keptAtRestBytes: FULL });
  assert.equal(pool.acquire(0).bytes.length, 4096);
  const small = pool.acquire(5_000);
  assert.equal(small.bytes.length, 5_000);
  small.release();
  assert.equal(pool.freeBytes, 0);
});

test("a buffer pool that is mostly in use hands out smaller buffers", () => {
  const pool = new BufferPool(SIZES);
  const borrowed = [];
  while (!pool.tight) borrowed.push(pool.acquire());
  assert.equal(pool.borrowedBytes, 5 * FULL);
  borrowed.push(pool.acquire());
  assert.equal(borrowed.at(-1)?.bytes.length, TIGHT);
  for (const loan of borrowed) loan.release();
  assert.equal(pool.borrowedBytes, 0);
  assert.equal(pool.acquire().bytes.length, FULL);
});

const MINUTE_MS = 60_000;

describe("an allowance", () => {
  it("an Allowance evicts idle shares only if eviction frees enough room", () => {
    const lost: string[] = [];
    let nowMs = 0;
    const refusal = (because: string): AgentError =>
      new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_FILE_CALLS", because);
    const allowance = new Allowance({ limit: 100, clock: { monotonicMs: () => nowMs }, refusal });
    const idle = allowance.share({}, () => lost.push("idle"));
    const busy = allowance.share({}, () => lost.push("busy"));
    idle.set(10);
    nowMs = MINUTE_MS + 1;
    busy.set(80);
    assert.throws(() => allowance.share({}, () => {}).set(50), AgentError);
    assert.deepEqual(lost, []);
    allowance.share({}, () => {}).set(20);
    assert.deepEqual(lost, ["idle"]);
  });

  it("after an Allowance evicts a share, progress() and set() have no effect", () => {
    const lost: string[] = [];
    let nowMs = 0;
    const refusal = (because: string): AgentError =>
      new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_FILE_CALLS", because);
    const allowance = new Allowance({ limit: 1, clock: { monotonicMs: () => nowMs }, refusal });
    const owner = {};
    const share = (name: string): Share => allowance.share(owner, () => lost.push(name));
    const [a, b] = [share("a"), share("b")];
    a.set(1);
    nowMs = MINUTE_MS;
    b.set(1);
    a.progress();
    a.set(1);
    a.set(0);
    assert.deepEqual(lost, ["a"]);
    assert.throws(() => share("c").set(1), AgentError);
    b.set(0);
    share("c").set(1);
  });
});

describe("a mutex", () => {
  it("a mutex runs the next task after one that failed", async () => {
    const mutex = new Mutex();
    await assert.rejects(
      mutex.run(() => Promise.reject(new Error("no"))),
      /no/,
    );
    assert.equal(await mutex.run(() => Promise.resolve(1)), 1);
  });

  it("a mutex skips a waiting task that was aborted and runs the next", async () => {
    const mutex = new Mutex();
    const first = Promise.withResolvers<void>();
    const events: string[] = [];
    const running = mutex.run(async () => {
      await first.promise;
      events.push("first");
    });
    const given = new AbortController();
    const second = mutex.run(async () => void events.push("second"), given.signal);
    const third = mutex.run(async () => void events.push("third"));
    given.abort(new Error("client gone"));
    await assert.rejects(second, /client gone/);
    await yieldToEventLoop();
    assert.deepEqual(events, []);
    first.resolve();
    await Promise.all([running, third]);
    assert.deepEqual(events, ["first", "third"]);
  });
});
