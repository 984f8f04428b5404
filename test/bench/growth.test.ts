import assert from "node:assert/strict";
import { test } from "node:test";
import { growthCurves, growthSummary } from "../../scripts/bench/report/growth.ts";
import { makeRow, type Row } from "../../scripts/bench/row.ts";
import { nameOfStep, readGrowthName } from "../../scripts/bench/rows/growth-names.ts";

const GIB = 2 ** 30;

function row(name: string, ours: number, peer: number): Row {
  return makeRow({ name, unit: "ms", better: "lower", samples: { ours: [ours], "grpc-go": [peer] } });
}

test("what a row's name says about growth is what it was made of", () => {
  for (const step of [
    { load: "execs", size: 256 },
    { load: "read", size: 256 * 2 ** 20 },
    { load: "stdin", size: 16 * GIB },
  ] as const) {
    assert.deepEqual(readGrowthName(`${nameOfStep(step)}: CPU`), { ...step, figure: "CPU" });
  }
});

test("other rows say nothing about growth", () => {
  for (const name of ["Health p50", "peak memory: read of 1 GiB", "64 file reads at once: CPU"]) {
    assert.equal(readGrowthName(name), undefined, name);
  }
});

test("the cost of a size is that of all commands or bytes together, whatever the order of the rows", () => {
  const curves = growthCurves([
    row("100 execs at once: each", 0.5, 0.4),
    row("1 execs at once: each", 2, 1),
    row("read of 1 GiB: CPU", 1, 1.5),
    row("read of 16 GiB: CPU", 1, 1.25),
    row("Health p50", 1, 1),
  ]);
  assert.deepEqual(
    curves.map(({ load, cost, lines }) => [load, cost, lines.map(({ points }) => points.map((point) => point.cost))]),
    [
      [
        "execs",
        "time",
        [
          [0.002, 0.05],
          [0.001, 0.04],
        ],
      ],
      [
        "read",
        "CPU time",
        [
          [1, 16],
          [1.5, 20],
        ],
      ],
    ],
  );
});

test("a cost at one size alone says nothing about growth", () => {
  assert.deepEqual(growthCurves([row("1 execs at once: each", 2, 1)]), []);
  assert.equal(growthSummary([]), "");
});

test("the summary holds the last step against the straight line; memory has none to be held against", () => {
  const summary = growthSummary([
    row("10 execs at once: CPU of each", 1, 1),
    row("100 execs at once: CPU of each", 1, 1),
    row("256 execs at once: CPU of each", 1.5, 1),
    row("stdout of 1 MiB: peak memory", 20, 10),
    row("stdout of 1 GiB: peak memory", 30, 10),
  ]);
  assert.deepEqual(summary.split("\n"), [
    "- 256 execs at once: 3.84x the CPU time of 100 (2.56x would be straight); grpc-go 2.56x",
    "- stdout of 1 GiB: 1.5x the peak memory of 1 MiB; grpc-go 1x",
  ]);
});
