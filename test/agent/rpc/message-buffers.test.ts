import assert from "node:assert/strict";
import { test } from "node:test";
import { MessageBuffers, SpareMemory } from "../../../src/agent/rpc/message-buffers.ts";

const LARGE_BYTES = 256 * 1024;

test("a large message that was given back makes room for the next, by any view of it", () => {
  const buffers = new MessageBuffers(new SpareMemory());
  const first = buffers.take(LARGE_BYTES);
  assert.notEqual(buffers.take(LARGE_BYTES).buffer, first.buffer);
  buffers.release(first.subarray(5));
  const next = buffers.take(LARGE_BYTES - 100);
  assert.equal(next.buffer, first.buffer);
  assert.equal(next.length, LARGE_BYTES - 100);
});

test("a message is taken back once, and only if it was given out", () => {
  const buffers = new MessageBuffers(new SpareMemory());
  const foreign = new Uint8Array(LARGE_BYTES);
  const own = buffers.take(LARGE_BYTES);
  buffers.release(foreign);
  buffers.release(own);
  buffers.release(own);
  assert.equal(buffers.take(LARGE_BYTES).buffer, own.buffer);
  assert.notEqual(buffers.take(LARGE_BYTES).buffer, own.buffer);
});

test("a buffer that is much too large is not used for a small message", () => {
  const buffers = new MessageBuffers(new SpareMemory());
  buffers.release(buffers.take(16 * LARGE_BYTES));
  assert.equal(buffers.take(LARGE_BYTES).buffer.byteLength, LARGE_BYTES);
});

test("what all requests keep is bounded, and is given back at each request's end", () => {
  const spare = new SpareMemory(LARGE_BYTES);
  const first = new MessageBuffers(spare);
  const second = new MessageBuffers(spare);
  const kept = first.take(LARGE_BYTES);
  const given = second.take(LARGE_BYTES);
  assert.equal(first.release(kept), LARGE_BYTES);
  assert.equal(second.release(given), LARGE_BYTES);
  assert.deepEqual([kept.length, given.length], [LARGE_BYTES, 0], "the second has its memory taken from it");
  first.close();
  assert.equal(kept.length, 0);
  const again = second.take(LARGE_BYTES);
  second.release(again);
  assert.equal(second.take(LARGE_BYTES).buffer, again.buffer);
  const late = first.take(LARGE_BYTES);
  first.release(late);
  assert.equal(late.length, 0, "a request that is over keeps nothing");
});
