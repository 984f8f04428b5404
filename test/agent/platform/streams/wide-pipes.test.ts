import assert from "node:assert/strict";
import { closeSync, constants, openSync } from "node:fs";
import { test } from "node:test";
import { BufferPool } from "../../../../src/agent/domain/index.ts";
import { FdSink } from "../../../../src/agent/platform/streams/sink.ts";
import { FdSource, STREAM_BUFFERS } from "../../../../src/agent/platform/streams/source.ts";
import { WidePipes } from "../../../../src/agent/platform/streams/wide-pipes.ts";
import { pipe } from "../../../fixtures/pipe.ts";
import { addon } from "../../../fixtures/spawning.ts";

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

test("a command that does not read its input is given four times what a pipe usually holds, and no more", () => {
  const [ours, theirs] = pipe(false);
  const sink = new FdSink(addon, "pipe", ours);
  void sink.write(MUCH);
  assert.equal(addon.bytesAvailable(theirs), WIDE_BYTES);
  sink.close();
  closeSync(theirs);
});

test("a command that has filled the pipe of its output can write four times as much before it has to wait", async () => {
  const [ours, theirs] = pipe(true);
  assert.equal(fill(theirs), USUAL_BYTES);
  const source = new FdSource(addon, new BufferPool(STREAM_BUFFERS), "pipe", ours);
  // The chunks are not released: the source reads four of them, and the rest stays in the pipe.
  await new Promise<void>((resolve) => source.start({ chunk: () => resolve(), end: () => {} }));
  assert.equal(fill(theirs), WIDE_BYTES);
  source.close();
  closeSync(theirs);
});

test("32 pipes are wide at once, each of them once, and one that leaves makes room", () => {
  const pipes = Array.from({ length: 33 }, () => pipe(true));
  const wide = new WidePipes(addon);
  const widened = pipes.map(([fd]) => wide.widen(fd));
  assert.deepEqual(widened, [...Array.from({ length: 32 }, () => true), false]);
  const [[first], [last]] = [pipes.at(0) ?? [-1], pipes.at(-1) ?? [-1]];
  assert.equal(wide.widen(first), false);
  wide.leave(first);
  assert.equal(wide.widen(last), true);
  for (const fd of pipes.flat()) closeSync(fd);
});
