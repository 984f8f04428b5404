import assert from "node:assert/strict";
import { test } from "node:test";
import {
  BUFFER_BYTES,
  BufferPool,
  TIGHT_ABOVE_BYTES,
  TIGHT_BUFFER_BYTES,
} from "../../../src/platform/streams/buffer-pool.ts";

test("a buffer that was given back is lent again", () => {
  const pool = new BufferPool();
  const first = pool.lend();
  first.giveBack();
  assert.equal(pool.lend().bytes, first.bytes);
});

test("giving back twice counts once", () => {
  const pool = new BufferPool();
  const first = pool.lend();
  pool.lend();
  first.giveBack();
  first.giveBack();
  assert.equal(pool.lentBytes, BUFFER_BYTES);
  assert.notEqual(pool.lend().bytes, pool.lend().bytes);
});

test("buffers are small while much is on loan, and of full size again afterwards", () => {
  const pool = new BufferPool();
  const lent = [];
  while (!pool.tight) lent.push(pool.lend());
  assert.ok(pool.lentBytes > TIGHT_ABOVE_BYTES);
  const small = pool.lend();
  assert.equal(small.bytes.length, TIGHT_BUFFER_BYTES);
  small.giveBack();
  for (const buffer of lent) buffer.giveBack();
  assert.equal(pool.lentBytes, 0);
  assert.equal(pool.lend().bytes.length, BUFFER_BYTES);
});
