import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Cursor, OutputLog, type OutputStream, type WhenFull } from "../../../src/agent/exec/output-log.ts";
import { seededRandom } from "../../fixtures/seeded-random.ts";

const STREAMS: readonly OutputStream[] = ["stdout", "stderr"];
const ROUNDS = 60;
const STEPS = 400;

/** A byte by its offset, different from its neighbours and from the other stream's. */
function byteAt(stream: OutputStream, offset: number): number {
  return (offset * 31 + (offset >> 8) + (stream === "stdout" ? 0 : 101)) & 0xff;
}

/** Writes as a source does, as much as there is room for. Returns the number of bytes. */
function write(log: OutputLog, stream: OutputStream, sizeBytes: number): number {
  const store = log.store(stream);
  const room = store.room();
  const count = Math.min(sizeBytes, room);
  if (count === 0) return 0;
  const from = log.ends[stream];
  for (let at = 0; at < count; at++) store.bytes[store.position + at] = byteAt(stream, from + at);
  store.filled(count);
  return count;
}

/** What a reader has seen, checked byte by byte. */
class Reader {
  readonly next: Record<OutputStream, number>;
  gapBytes = 0;
  readonly #log: OutputLog;
  readonly #cursor: Cursor;

  constructor(log: OutputLog, from: Readonly<Record<OutputStream, number>>) {
    this.#log = log;
    this.next = { ...from };
    this.#cursor = log.cursor(from);
  }

  /** Reads one entry; false: there was none. */
  read(): boolean {
    const entry = this.#log.next(this.#cursor, (sizeBytes) => new Uint8Array(sizeBytes));
    if (entry === undefined) return false;
    if (entry.kind === "gap") {
      assert.ok(entry.bytes > 0);
      this.gapBytes += entry.bytes;
      this.next[entry.stream] += entry.bytes;
      return true;
    }
    assert.ok(entry.bytes.length > 0);
    for (const byte of entry.bytes) assert.equal(byte, byteAt(entry.stream, this.next[entry.stream]++));
    return true;
  }

  readAll(): void {
    while (this.read());
    assert.deepEqual(this.next, { ...this.#log.ends });
  }
}

function logOf(capacityBytes: number, whenFull: WhenFull, streams: 1 | 2 = 2): OutputLog {
  return new OutputLog(capacityBytes, whenFull, streams, () => {});
}

describe("the log of a kept command", () => {
  for (const whenFull of ["drop_oldest", "block"] as const) {
    it(`each reader gets each byte once or a gap (${whenFull})`, () => {
      const random = seededRandom(whenFull === "block" ? 7 : 11);
      for (let round = 0; round < ROUNDS; round++) {
        const capacity = 1 + random.below(20_000);
        const log = logOf(capacity, whenFull);
        const first = new Reader(log, { stdout: 0, stderr: 0 });
        for (let step = 0; step < STEPS; step++) {
          const stream = STREAMS[random.below(2)] ?? "stdout";
          const kind = random.below(6);
          if (kind < 4) write(log, stream, 1 + random.below(random.below(4) === 0 ? 9_000 : 60));
          else if (kind === 4) for (let reads = random.below(4); reads > 0; reads--) first.read();
          else log.acknowledge(first.next);
          assert.ok(log.heldBytes <= capacity);
          if (random.below(20) > 0) continue;
          const from = { stdout: random.below(log.ends.stdout + 1), stderr: random.below(log.ends.stderr + 1) };
          new Reader(log, from).readAll();
        }
        first.readAll();
        if (whenFull === "block") assert.equal(first.gapBytes, 0);
      }
    });
  }

  it("a full output log with `block` accepts bytes only after an acknowledgement", () => {
    const log = logOf(10, "block");
    assert.deepEqual([write(log, "stdout", 7), write(log, "stderr", 7), write(log, "stdout", 1)], [7, 3, 0]);
    // The oldest bytes are of stdout: those of stderr cannot go before them.
    log.acknowledge({ stdout: 0, stderr: 3 });
    assert.equal(log.store("stderr").room(), 0);
    log.acknowledge({ stdout: 2, stderr: 0 });
    assert.equal(write(log, "stderr", 9), 2);
    log.acknowledge({ stdout: 7, stderr: 3 });
    assert.equal(write(log, "stdout", 100), 8);
    assert.equal(log.heldBytes, 10);
  });

  it("a 64,000-byte output log holds at most 1,000 alternating stdout/stderr pieces", () => {
    const dropping = logOf(64_000, "drop_oldest");
    for (let run = 0; run < 5_000; run++) write(dropping, STREAMS[run % 2] ?? "stdout", 1);
    const reader = new Reader(dropping, { stdout: 0, stderr: 0 });
    reader.readAll();
    assert.deepEqual([dropping.heldBytes, reader.gapBytes], [1_000, 4_000]);
    const blocking = logOf(64_000, "block");
    for (let run = 0; run < 1_000; run++) assert.equal(write(blocking, STREAMS[run % 2] ?? "stdout", 1), 1);
    // The stream whose run is the last still has room.
    assert.deepEqual([write(blocking, "stdout", 1), write(blocking, "stderr", 1)], [0, 1]);
    blocking.acknowledge({ stdout: 1, stderr: 0 });
    assert.equal(write(blocking, "stdout", 1), 1);
  });

  it("an output log keeps acknowledged bytes until new output needs their space", () => {
    const log = logOf(10, "block", 1);
    write(log, "stdout", 10);
    log.acknowledge({ stdout: 10, stderr: 0 });
    const again = new Reader(log, { stdout: 0, stderr: 0 });
    again.readAll();
    assert.equal(again.gapBytes, 0);
  });

  it("a discarded output log holds no bytes, even after more writes", () => {
    const log = logOf(10, "block", 1);
    write(log, "stdout", 10);
    log.discard();
    assert.equal(log.heldBytes, 0);
    assert.equal(write(log, "stdout", 1_000), 1_000);
    assert.deepEqual([log.heldBytes, log.ends.stdout], [0, 1_010]);
  });
});
