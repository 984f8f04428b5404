import assert from "node:assert/strict";
import { closeSync, fstatSync } from "node:fs";
import { constants } from "node:os";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { READABLE, WRITABLE } from "../../../src/agent/native/index.ts";
import { pipe } from "../../fixtures/pipe.ts";
import { addon, bytes, request, run } from "../../fixtures/spawning.ts";
import { script } from "../../fixtures/programs/index.ts";

const { EAGAIN, EBADF, EINVAL, ENODATA, ENOTTY, EPIPE } = constants.errno;

function pair(result: readonly [number, number] | number): readonly [number, number] {
  if (typeof result === "number") throw new Error(`errno ${-result}`);
  return result;
}

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

test("our end of a pipe does not block, tells what lies in it and when its writer has gone", () => {
  const [ours, theirs] = pipe(true);
  const buffer = Buffer.alloc(10);
  assert.equal(addon.read(ours, buffer, 0, 10), -EAGAIN);
  assert.equal(addon.write(theirs, bytes("xyz"), 1, 2), 2);
  assert.equal(addon.bytesAvailable(ours), 2);
  assert.equal(addon.hungUp(ours), false);
  closeSync(theirs);
  assert.equal(addon.hungUp(ours), true);
  assert.equal(addon.read(ours, buffer, 3, 7), 2);
  assert.equal(buffer.toString("latin1", 3, 5), "yz");
  assert.equal(addon.read(ours, buffer, 0, 10), 0);
  closeSync(ours);
});

test("a read or write outside the given bytes is refused", () => {
  const buffer = Buffer.alloc(4);
  assert.equal(addon.read(0, buffer, 2, 3), -EINVAL);
  assert.equal(addon.read(0, buffer, -1, 2), -EINVAL);
  assert.equal(addon.write(1, buffer, 5, 0), -EINVAL);
});

test("a pipe whose reader has gone takes nothing", () => {
  const [ours, theirs] = pipe(false);
  closeSync(theirs);
  assert.equal(addon.write(ours, Buffer.alloc(1), 0, 1), -EPIPE);
  closeSync(ours);
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

test("a watch tells of bytes, of the end and of a reader that left, and closes its descriptor once", async () => {
  const [reader, writer] = pipe(true);
  const event = Promise.withResolvers<number>();
  const watch = new addon.FdWatch(reader, event.resolve);
  assert.equal(watch.set(READABLE), 0);
  closeSync(writer);
  assert.equal(await event.promise, READABLE);
  watch.close();
  assert.throws(() => fstatSync(reader), { code: "EBADF" });
  const [again, other] = pipe(true);
  assert.equal(again, reader);
  watch.close();
  assert.ok(fstatSync(again).isFIFO());
  assert.equal(watch.set(READABLE), -EBADF);
  closeSync(again);
  closeSync(other);

  const [ours, theirs] = pipe(false);
  const gone = Promise.withResolvers<number>();
  while (addon.write(ours, Buffer.alloc(4096), 0, 4096) > 0) continue;
  const writing = new addon.FdWatch(ours, gone.resolve);
  writing.set(WRITABLE);
  closeSync(theirs);
  assert.ok((await gone.promise) & WRITABLE);
  writing.close();
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

test("a descriptor that cannot be watched is an error", () => {
  assert.throws(() => new addon.FdWatch(9999, () => {}), { code: "EBADF" });
});

test("a terminal has its size, and its end-of-file character only while it edits lines", async () => {
  const [master, slave] = pair(addon.openTerminal(100, 30));
  assert.equal(addon.terminalEofByte(master), 4);
  const size = await run(request(["/bin/stty", "size", "-F", `/proc/${process.pid}/fd/${slave}`]));
  assert.equal(size.stdout.toString(), "30 100\n", size.stderr.toString());
  assert.equal((await run(request(["/bin/stty", "raw", "-F", `/proc/${process.pid}/fd/${slave}`]))).end.signal, 0);
  assert.equal(addon.terminalEofByte(master), -ENODATA);
  closeSync(slave);
  closeSync(master);
  const [reader, writer] = pipe(true);
  assert.equal(addon.resizeTerminal(reader, 1, 1), -ENOTTY);
  closeSync(reader);
  closeSync(writer);
});

test("a process's row has its parent; one that is not there has none", () => {
  const rows = addon.processRows(Int32Array.of(2 ** 30, process.pid));
  assert.ok(typeof rows === "object");
  assert.deepEqual([rows.length, ...rows.subarray(0, 2)], [6, process.pid, process.ppid]);
});

test("the environment is given byte for byte, what is not UTF-8, duplicates and odd entries included", async () => {
  const odd = ["41ff3dfe", "4455503d31", "4455503d32", bytes("noequals").toString("hex"), bytes("=x").toString("hex")];
  const { stdout } = await run(request(script("environ"), { env: odd.map((hex) => Buffer.from(hex, "hex")) }));
  assert.deepEqual(stdout.toString().trim().split("\n"), odd);
});

test("the wall clock is that of the system", () => {
  assert.ok(Math.abs(Number(addon.realtimeNs() / 1_000_000n) - Date.now()) < 1000);
});
