import assert from "node:assert/strict";
import { test } from "node:test";
import { plotGrowth } from "../../scripts/bench/report/growth-plot.ts";
import { nameOfStep } from "../../scripts/bench/report/growth.ts";
import { type GrowthFigure, makeRow, type Row } from "../../scripts/bench/row.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;

function row(size: number, cost: GrowthFigure["cost"], ours: number, peer: number): Row {
  const growth: GrowthFigure = { load: "read", size, cost };
  return makeRow({ name: nameOfStep(growth), unit: "s/GiB", samples: { ours: [ours], "grpc-go": [peer] }, growth });
}

const ROWS = [
  row(MIB, "CPU time", 1.6, 1.4),
  row(GIB, "CPU time", 0.8, 1.1),
  row(16 * GIB, "CPU time", 0.8, 1.1),
  row(MIB, "peak memory", 20, 12),
  row(GIB, "peak memory", 30, 18),
];

test("each cost has a panel with a line for each contender, and says how far it is from straight", () => {
  const svg = plotGrowth(ROWS);
  assert.equal(svg.match(/<polyline /g)?.length, 4);
  assert.match(svg, />CPU time of a file read</);
  assert.match(svg, />16x the data: ours 16x, grpc-go 16x</);
  assert.match(svg, />1,024x the data: ours 1\.5x, grpc-go 1\.5x</);
});

test("time has a line of exact proportion to compare with, memory has none, and all of it lies in the picture", () => {
  const svg = plotGrowth(ROWS);
  assert.equal(svg.match(/stroke-dasharray/g)?.length, 2);
  const [, width, height] = /viewBox="0 0 (\d+) (\d+)"/.exec(svg) ?? [];
  for (const [, axis, value] of svg.matchAll(/ c?([xy])[12]?="([^"]+)"/g)) {
    const limit = Number(axis === "x" ? width : height);
    assert.ok(Number(value) >= 0 && Number(value) <= limit, `${axis} ${value}`);
  }
});

test("without rows about growth it is an empty picture", () => {
  assert.doesNotMatch(plotGrowth([]), /polyline|NaN/);
});
