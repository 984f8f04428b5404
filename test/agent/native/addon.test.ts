import assert from "node:assert/strict";
import { closeSync } from "node:fs";
import { constants } from "node:os";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { pipe } from "../../fixtures/pipe.ts";
import { addon } from "../../fixtures/spawning.ts";

const { EAGAIN, EINVAL } = constants.errno;

/** V8's own collector. */
function collector(): () => void {
  setFlagsFromString("--expose-gc");
  return runInNewContext("gc") as () => void;
}

test("signals to init, to every process and to one's own group are refused", () => {
  for (const pid of [1, 0, -1, -process.pid]) {
    assert.equal(addon.kill(pid, 0), -EINVAL);
    assert.equal(addon.killGroup(pid, 0), -EINVAL);
  }
});

test("the open files limit of process 0, which would mean this one, is refused", () => {
  assert.equal(addon.openFilesLimitOf(0), -EINVAL);
  assert.ok(addon.openFilesLimitOf(process.pid) > 0);
});

test("a read or write outside the given bytes is refused", () => {
  const buffer = Buffer.alloc(4);
  assert.equal(addon.read(0, buffer, 2, 3), -EINVAL);
  assert.equal(addon.read(0, buffer, -1, 2), -EINVAL);
  assert.equal(addon.write(1, buffer, 5, 0), -EINVAL);
});

test("a background writer takes what fits beside what waits, whole and in order, and waits for no reader", () => {
  const [ours, theirs] = pipe(true);
  const writer = new addon.BackgroundWriter(theirs, 1 << 20);
  const record = (number: number): Buffer => Buffer.alloc(4096, String(number % 10));
  let taken = 0;
  while (taken < 1000 && writer.write(record(taken))) taken++;
  assert.ok(taken >= 256, "what the writer holds, and what the pipe took meanwhile");
  assert.ok(taken < 1000);
  assert.equal(writer.drain(0), false);
  const page = Buffer.alloc(4096);
  for (let read = 0; read < taken;) {
    if (addon.read(ours, page, 0, page.length) === -EAGAIN) continue;
    assert.deepEqual(page, record(read++));
  }
  assert.equal(writer.drain(60_000), true);
  assert.equal(writer.write(Buffer.alloc((1 << 20) + 1)), false);
  closeSync(ours);
  closeSync(theirs);
});

test("a background writer also writes where another made the descriptor non-blocking, and drops what nobody can read", () => {
  const [theirs, ours] = pipe(false);
  const writer = new addon.BackgroundWriter(theirs, 1 << 20);
  for (let count = 0; count < 64; count++) assert.equal(writer.write(Buffer.alloc(4096)), true);
  const buffer = Buffer.alloc(64 * 4096);
  for (let read = 0; read < buffer.length;) read += addon.read(ours, buffer, 0, buffer.length);
  assert.equal(writer.drain(60_000), true);
  closeSync(ours);
  assert.equal(writer.write(Buffer.alloc(10)), true);
  assert.equal(writer.drain(60_000), true);
  closeSync(theirs);
});

test("a watch that was closed and collected leaves no memory", async () => {
  const [reader, writer] = pipe(true);
  const collect = collector();
  const openAndClose = async (count: number): Promise<number> => {
    for (let opened = 1; opened <= count; opened++) {
      new addon.FdWatch(addon.duplicate(reader), () => {}).close();
      if (opened % 1000 !== 0) continue;
      // libuv closes its handle in the next turn; only then may the object go.
      await nextTurn();
      collect();
      await nextTurn();
    }
    addon.trimHeap();
    return process.memoryUsage.rss();
  };
  const before = await openAndClose(20_000);
  const grownBytes = (await openAndClose(100_000)) - before;
  assert.ok(grownBytes < 100_000 * 40, `${grownBytes / 100_000} bytes a watch`);
  closeSync(reader);
  closeSync(writer);
});
