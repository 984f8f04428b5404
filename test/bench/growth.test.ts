import assert from "node:assert/strict";
import { test } from "node:test";
import { growthSummary, nameOfStep } from "../../scripts/bench/report/growth.ts";
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

test("a cost at one size alone says nothing about growth", () => {
  assert.equal(growthSummary([row({ load: "execs", size: 1, cost: "time" }, 2, 1), row(undefined, 1, 1)]), "");
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
