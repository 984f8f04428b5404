import assert from "node:assert/strict";
import { test } from "node:test";
import { MessageBuffers } from "../../../src/agent/rpc/framing.ts";

const LARGE_BYTES = 256 * 1024;

test("a large message that was given back makes room for the next, by any view of it", () => {
  const buffers = new MessageBuffers();
  const first = buffers.take(LARGE_BYTES);
  assert.notEqual(buffers.take(LARGE_BYTES).buffer, first.buffer);
  buffers.release(first.subarray(5));
  const next = buffers.take(LARGE_BYTES - 100);
  assert.equal(next.buffer, first.buffer);
  assert.equal(next.length, LARGE_BYTES - 100);
});

test("a message is taken back once, and only if it was given out", () => {
  const buffers = new MessageBuffers();
  const foreign = new Uint8Array(LARGE_BYTES);
  const own = buffers.take(LARGE_BYTES);
  buffers.release(foreign);
  buffers.release(own);
  buffers.release(own);
  assert.equal(buffers.take(LARGE_BYTES).buffer, own.buffer);
  assert.notEqual(buffers.take(LARGE_BYTES).buffer, own.buffer);
});

test("a buffer that is much too large is not used for a small message", () => {
  const buffers = new MessageBuffers();
  buffers.release(buffers.take(16 * LARGE_BYTES));
  assert.equal(buffers.take(LARGE_BYTES).buffer.byteLength, LARGE_BYTES);
});
