import assert from "node:assert/strict";
import { test } from "node:test";
import { makeRow } from "../../scripts/bench/row.ts";

const SPEC = { name: "exec p50", unit: "ms", better: "lower" } as const;

test("the ratio is the median of the rounds' own, so that a busy round counts for both or not at all", () => {
  const row = makeRow({ ...SPEC, samples: { ours: [1, 20, 1], "grpc-go": [2, 40, 2] } });
  assert.equal(row.ratios["grpc-go"], 0.5);
  assert.deepEqual(row.spreads.ours, { median: 1, low: 1, high: 20 });
});

test("the ratio of contenders with unequal rounds is that of their medians", () => {
  const row = makeRow({ ...SPEC, samples: { ours: [3, 3, 3], openssh: [6] } });
  assert.equal(row.ratios.openssh, 0.5);
});

test("a goal is judged against its peer, an absolute one against our own median", () => {
  const samples = { ours: [2], "grpc-go": [1] };
  const beside = makeRow({ ...SPEC, samples, goal: { peer: "grpc-go", relation: "at most", limit: 1 } });
  const absolute = makeRow({ ...SPEC, samples, goal: { relation: "at least", limit: 2 } });
  assert.deepEqual(
    [beside.verdict, absolute.verdict],
    [
      { peer: "grpc-go", relation: "at most", limit: 1, actual: 2, met: false },
      { relation: "at least", limit: 2, actual: 2, met: true },
    ],
  );
});

test("nothing is said of a peer that was not measured", () => {
  const row = makeRow({
    ...SPEC,
    samples: { ours: [1], "grpc-go": [] },
    goal: { peer: "openssh", relation: "at most", limit: 0.5 },
  });
  assert.deepEqual([row.ratios, row.verdict], [{}, undefined]);
});
