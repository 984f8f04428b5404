import assert from "node:assert/strict";
import { test } from "node:test";
import { CHUNK_BYTES, ChunkBuffers, TIGHT_ABOVE_BYTES, TIGHT_CHUNK_BYTES } from "../../src/files/chunk-buffers.ts";

test("a buffer is reused while a transfer lasts, and none is kept afterwards", () => {
  const buffers = new ChunkBuffers();
  const leave = buffers.enter();
  const first = buffers.lend(CHUNK_BYTES);
  const second = buffers.lend(CHUNK_BYTES);
  first.giveBack();
  assert.equal(buffers.freeBytes, CHUNK_BYTES);
  const third = buffers.lend(CHUNK_BYTES);
  assert.equal(third.bytes, first.bytes);
  second.giveBack();
  assert.equal(buffers.lend(CHUNK_BYTES).bytes, second.bytes);
  leave();
  third.giveBack();
  assert.deepEqual([buffers.lentBytes, buffers.freeBytes], [CHUNK_BYTES, 0]);
});

test("a buffer is given back once, however often it is tried", () => {
  const buffers = new ChunkBuffers();
  buffers.enter();
  buffers.lend(CHUNK_BYTES);
  const lent = buffers.lend(CHUNK_BYTES);
  lent.giveBack();
  lent.giveBack();
  assert.deepEqual([buffers.lentBytes, buffers.freeBytes], [CHUNK_BYTES, CHUNK_BYTES]);
});

test("a small file gets a small buffer", () => {
  const buffers = new ChunkBuffers();
  assert.equal(buffers.lend(0).bytes.length, 4096);
  assert.equal(buffers.lend(5_000).bytes.length, 5_000);
});

test("buffers are smaller while much is on loan", () => {
  const buffers = new ChunkBuffers();
  while (buffers.lentBytes <= TIGHT_ABOVE_BYTES) buffers.lend(CHUNK_BYTES);
  assert.equal(buffers.lend(CHUNK_BYTES).bytes.length, TIGHT_CHUNK_BYTES);
});
