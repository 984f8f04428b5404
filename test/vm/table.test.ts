import assert from "node:assert/strict";
import { test } from "node:test";
import type { TestEvent } from "node:test/reporters";
import { type Case, record, summarize } from "../../scripts/vm/table.ts";

const CASES: readonly Case[] = [
  { suite: "Linux 6.12", title: "boots", outcome: "passed", durationMs: 2_000 },
  { suite: "Linux 6.1", title: "boots", outcome: "passed", durationMs: 1_500 },
  { suite: "Linux 6.12", title: "draws from the vDSO", outcome: "passed", durationMs: 40 },
  { suite: "a bridge", title: "carries calls", outcome: "passed", durationMs: 300 },
];

function event(type: TestEvent["type"], name: string, more: { nesting?: number } = {}, kind?: "suite"): TestEvent {
  const details = { duration_ms: 5, error: new Error(name), ...(kind && { type: kind }) };
  return { type, data: { name, nesting: 1, message: "", details, ...more } } as unknown as TestEvent;
}

async function* stream(events: readonly TestEvent[]): AsyncGenerator<TestEvent> {
  yield* events;
}

test("the table has a column for each kernel, in their order, and a line for each other case", () => {
  const { lines, succeeded } = summarize(CASES, 12.4);
  assert.deepEqual(lines, [
    "",
    "      6.1     6.12",
    "    1.5 s    2.0 s  boots",
    "             0.0 s  draws from the vDSO",
    "    0.3 s  a bridge: carries calls",
    "12 s",
    "4 passed, 0 failed, 0 skipped",
  ]);
  assert.equal(succeeded, true);
});

test("a failed case fails the run and stands out, and so does a run without any case", () => {
  const failed = summarize([{ suite: "a bridge", title: "carries calls", outcome: "failed", durationMs: 1 }], 1);
  assert.ok(failed.lines.includes("   FAILED  a bridge: carries calls"));
  assert.equal(failed.succeeded, false);
  assert.equal(summarize([], 1).succeeded, false);
});

test("cases are counted by the suite that they stand in, suites are not", async (t) => {
  t.mock.method(console, "log", () => undefined);
  const cases = await record(
    stream([
      event("test:start", "Linux 6.1", { nesting: 0 }),
      event("test:pass", "boots"),
      event("test:fail", "clones"),
      event("test:fail", "Linux 6.1", { nesting: 0 }, "suite"),
      event("test:start", "a file that does not load", { nesting: 0 }),
      event("test:fail", "a file that does not load", { nesting: 0 }),
    ]),
  );
  assert.deepEqual(
    cases.map(({ suite, title, outcome }) => [suite, title, outcome]),
    [
      ["Linux 6.1", "boots", "passed"],
      ["Linux 6.1", "clones", "failed"],
      ["a file that does not load", "a file that does not load", "failed"],
    ],
  );
});
