import assert from "node:assert/strict";
import { test } from "node:test";
import { growthCurves, growthSummary, nameOfStep } from "../../scripts/bench/report/growth.ts";
import { type GrowthFigure, makeRow, type Row } from "../../scripts/bench/row.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;

function row(growth: GrowthFigure | undefined, ours: number, peer: number): Row {
  const name = growth === undefined ? "Health p50" : `${nameOfStep(growth)}: ${growth.cost}`;
  return makeRow({ name, unit: "ms", samples: { ours: [ours], "grpc-go": [peer] }, ...(growth && { growth }) });
}

test("a step's rows are named after its load and size", () => {
  const names = (
    [
      { load: "execs", size: 256 },
      { load: "read", size: 256 * MIB },
      { load: "stdin", size: 16 * GIB },
    ] as const
  ).map(nameOfStep);
  assert.deepEqual(names, ["256 execs at once", "read of 256 MiB", "stdin of 16 GiB"]);
});

test("the cost of a size is that of all commands or bytes together, whatever the order of the rows", () => {
  const curves = growthCurves([
    row({ load: "execs", size: 100, cost: "time" }, 0.5, 0.4),
    row({ load: "execs", size: 1, cost: "time" }, 2, 1),
    row({ load: "read", size: GIB, cost: "CPU time" }, 1, 1.5),
    row({ load: "read", size: 16 * GIB, cost: "CPU time" }, 1, 1.25),
    row(undefined, 1, 1),
  ]);
  assert.deepEqual(
    curves.map(({ load, cost, lines }) => [load, cost, lines.map(({ points }) => points.map((point) => point.total))]),
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
  assert.deepEqual(growthCurves([row({ load: "execs", size: 1, cost: "time" }, 2, 1)]), []);
  assert.equal(growthSummary([]), "");
});

test("the summary holds the last step against the straight line; memory has none to be held against", () => {
  const summary = growthSummary([
    row({ load: "execs", size: 10, cost: "CPU time" }, 1, 1),
    row({ load: "execs", size: 100, cost: "CPU time" }, 1, 1),
    row({ load: "execs", size: 256, cost: "CPU time" }, 1.5, 1),
    row({ load: "stdout", size: MIB, cost: "peak memory" }, 20, 10),
    row({ load: "stdout", size: GIB, cost: "peak memory" }, 30, 10),
  ]);
  assert.deepEqual(summary.split("\n"), [
    "- 256 execs at once: 3.84x the CPU time of 100 (2.56x would be straight); grpc-go 2.56x",
    "- stdout of 1 GiB: 1.5x the peak memory of 1 MiB; grpc-go 1x",
  ]);
});
