import assert from "node:assert/strict";
import { test } from "node:test";
import { lossesAgainst, ratiosOf, readRecorded } from "../../scripts/bench/guard.ts";
import { makeRow, type Row } from "../../scripts/bench/row.ts";

function row(name: string, unit: string, better: "lower" | "higher", ours: number): Row {
  return makeRow({ name, unit, better, samples: { ours: [ours], "grpc-go": [10] } });
}

test("CPU time is recorded, what a caller waits for is not", () => {
  const rows = [
    row("file read: CPU", "s/GiB", "lower", 5),
    row("Health p50", "µs", "lower", 15),
    row("Health p99", "µs", "lower", 90),
    row("file read: throughput", "GB/s", "higher", 12),
  ];
  assert.deepEqual(ratiosOf(rows), { "file read: CPU": 0.5 });
});

test("a row is lost when it is clearly worse, not when it is a little worse, better, or new", () => {
  const recorded = { "a: CPU": 0.5, "b: CPU": 0.5, "c: CPU": 0.5 };
  const rows = [
    row("a: CPU", "s/GiB", "lower", 11),
    row("b: CPU", "s/GiB", "lower", 7),
    row("c: CPU", "s/GiB", "lower", 1),
    row("d: CPU", "s/GiB", "lower", 90),
  ];
  assert.deepEqual(lossesAgainst(recorded, rows), [{ row: "a: CPU", recorded: 0.5, now: 1.1 }]);
});

test("the recorded ratios are there and are numbers", () => {
  const recorded = Object.entries(readRecorded());
  assert.ok(recorded.length >= 10, `${recorded.length} rows`);
  for (const [name, ratio] of recorded) assert.ok(ratio > 0, name);
});
