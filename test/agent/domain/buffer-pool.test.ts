import assert from "node:assert/strict";
import { test } from "node:test";
import { BufferPool } from "../../../src/agent/domain/index.ts";

const FULL = 64 * 1024;
const TIGHT = 16 * 1024;
const SIZES = {
  fullBytes: FULL,
  tightBytes: TIGHT,
  tightAboveBytes: 4 * FULL,
  keptBytes: 3 * FULL,
  keptAtRestBytes: 0,
};

test("a buffer is lent again while anybody has entered, and none is kept afterwards", () => {
  const pool = new BufferPool(SIZES);
  const leave = pool.enter();
  const [first, second] = [pool.lend(), pool.lend()];
  first.release();
  assert.equal(pool.freeBytes, FULL);
  const third = pool.lend();
  assert.equal(third.bytes, first.bytes);
  second.release();
  leave();
  assert.equal(pool.freeBytes, 0);
  third.release();
  assert.deepEqual([pool.lentBytes, pool.freeBytes], [0, 0]);
});

test("as much is kept at rest as the pool says", () => {
  const pool = new BufferPool({ ...SIZES, keptAtRestBytes: FULL });
  const leave = pool.enter();
  const lent = Array.from({ length: 4 }, () => pool.lend());
  for (const loan of lent) loan.release();
  assert.equal(pool.freeBytes, 3 * FULL);
  leave();
  assert.equal(pool.freeBytes, FULL);
  pool.lend().release();
  assert.deepEqual([pool.lentBytes, pool.freeBytes], [0, FULL]);
});

test("a buffer is given back once, however often it is tried", () => {
  const pool = new BufferPool({ ...SIZES, keptAtRestBytes: FULL });
  const first = pool.lend();
  pool.lend();
  first.release();
  first.release();
  assert.deepEqual([pool.lentBytes, pool.freeBytes], [FULL, FULL]);
  assert.notEqual(pool.lend().bytes, pool.lend().bytes);
});

test("who wants little gets a small buffer, which is not kept", () => {
  const pool = new BufferPool({ ...SIZES, keptAtRestBytes: FULL });
  assert.equal(pool.lend(0).bytes.length, 4096);
  const small = pool.lend(5_000);
  assert.equal(small.bytes.length, 5_000);
  small.release();
  assert.equal(pool.freeBytes, 0);
});

test("buffers are small while much is on loan, and of full size again afterwards", () => {
  const pool = new BufferPool(SIZES);
  const lent = [];
  while (!pool.tight) lent.push(pool.lend());
  assert.equal(pool.lentBytes, 5 * FULL);
  lent.push(pool.lend());
  assert.equal(lent.at(-1)?.bytes.length, TIGHT);
  for (const loan of lent) loan.release();
  assert.equal(pool.lentBytes, 0);
  assert.equal(pool.lend().bytes.length, FULL);
});
