import assert from "node:assert/strict";
import { test } from "node:test";
import { lossesAgainst, ratiosOf, readRecorded, together } from "./guard.ts";
import { makeRow, type Row } from "./row.ts";

/** Load averages for each core. */
const QUIET = 1;
const BUSY = 8;

function row(name: string, unit: string, better: "lower" | "higher", ours: number): Row {
  return makeRow({ name, unit, better, samples: { ours: [ours], "grpc-go": [10] } });
}

test("the benchmark guard records CPU time, but not latency, p99 or throughput", () => {
  const rows = [
    row("file read: CPU", "s/GiB", "lower", 5),
    row("terminal: CPU", "s/GiB", "lower", 5),
    row("Health p50", "µs", "lower", 15),
    row("Health p99", "µs", "lower", 90),
    row("file read: throughput", "GB/s", "higher", 12),
  ];
  assert.deepEqual(ratiosOf(rows), { "file read: CPU": 0.5 });
});

test("the benchmark guard reports only results clearly worse than their recorded value", () => {
  const recorded = { "a: CPU": 0.5, "b: CPU": 0.5, "c: CPU": 0.5 };
  const rows = [
    row("a: CPU", "s/GiB", "lower", 7.1),
    row("b: CPU", "s/GiB", "lower", 6.9),
    row("c: CPU", "s/GiB", "lower", 1),
    row("d: CPU", "s/GiB", "lower", 90),
  ];
  assert.deepEqual(lossesAgainst(recorded, rows, QUIET), [{ row: "a: CPU", recorded: 0.5, now: 0.71 }]);
});

test("on a busy machine, the benchmark guard allows results twice as bad", () => {
  const recorded = { "a: CPU": 0.5 };
  assert.deepEqual(lossesAgainst(recorded, [row("a: CPU", "s/GiB", "lower", 9.9)], BUSY), []);
  assert.equal(lossesAgainst(recorded, [row("a: CPU", "s/GiB", "lower", 10.1)], BUSY).length, 1);
});

test("the benchmark guard compares the lowest CPU times of all measurement rounds", () => {
  const of = (ours: readonly number[], theirs: readonly number[]): Row =>
    makeRow({ name: "a: CPU", unit: "s/GiB", better: "lower", samples: { ours, "grpc-go": theirs } });
  const recorded = { "a: CPU": 0.5 };
  assert.deepEqual(lossesAgainst(recorded, [of([30, 6, 9], [40, 10, 10])], QUIET), []);
  const busy = [of([30, 20], [10, 11])];
  assert.deepEqual(lossesAgainst(recorded, busy, QUIET), [{ row: "a: CPU", recorded: 0.5, now: 2 }]);
  assert.deepEqual(lossesAgainst(recorded, together(busy, [of([5], [12])]), QUIET), []);
  assert.deepEqual(ratiosOf(together(busy, [of([5], [12])])), { "a: CPU": 0.5 });
});

test("the benchmark guard's recorded ratios exist and are positive numbers", () => {
  const recorded = Object.entries(readRecorded());
  assert.ok(recorded.length >= 10, `${recorded.length} rows`);
  for (const [name, ratio] of recorded) assert.ok(ratio > 0, name);
});
