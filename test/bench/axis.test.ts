import assert from "node:assert/strict";
import { test } from "node:test";
import { axisAround, axisOfValues } from "../../scripts/bench/report/growth-plot.ts";

test("an axis of values has each of them once, and equal factors are equally far apart", () => {
  const { ticks, at } = axisOfValues([100, 1, 10, 10], 0, 200);
  assert.deepEqual(
    [ticks, ticks.map(at)],
    [
      [1, 10, 100],
      [0, 100, 200],
    ],
  );
});

test("an axis around values begins and ends with a round figure; the wider it is, the fewer ticks", () => {
  assert.deepEqual(axisAround([19, 152], 0, 1).ticks, [10, 20, 50, 100, 200]);
  assert.deepEqual(axisAround([0.0016, 12.7], 0, 1).ticks, [0.001, 0.01, 0.1, 1, 10, 100]);
});

test("values that are all the same still have an axis around them", () => {
  const { low, high, at } = axisAround([20, 20], 0, 1);
  assert.deepEqual([low, high], [20, 50]);
  assert.equal(at(20), 0);
});
