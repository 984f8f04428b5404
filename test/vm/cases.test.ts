import assert from "node:assert/strict";
import { test } from "node:test";
import type { TestEvent } from "node:test/reporters";
import { type Case, record, summarize } from "../../scripts/vm/cases.ts";

function event(type: TestEvent["type"], name: string, more: { nesting?: number } = {}, kind?: "suite"): TestEvent {
  const details = { duration_ms: 5, error: new Error(name), ...(kind && { type: kind }) };
  return { type, data: { name, nesting: 1, message: "", details, ...more } } as unknown as TestEvent;
}

async function* stream(events: readonly TestEvent[]): AsyncGenerator<TestEvent> {
  yield* events;
}

test("a case that failed or was skipped fails the run and is named at its end; so does a run without any case", () => {
  const passed: Case = { suite: "Linux 6.12", title: "boots", outcome: "passed", durationMs: 2_000 };
  const counts = (lines: readonly string[]): string => lines.slice(-2).join(", ");
  const good = summarize([passed], 12.4);
  assert.deepEqual([good.succeeded, good.lines], [true, ["", "12 s", "1 passed, 0 failed, 0 skipped"]]);
  const failed = summarize([passed, { ...passed, title: "clones", outcome: "FAILED" }], 1);
  assert.deepEqual([failed.succeeded, counts(failed.lines)], [false, "1 s, 1 passed, 1 failed, 0 skipped"]);
  assert.ok(failed.lines.includes("FAILED  2.0 s  Linux 6.12: clones"));
  const skipped = summarize([passed, { ...passed, outcome: "SKIPPED" }], 1);
  assert.deepEqual([skipped.succeeded, counts(skipped.lines)], [false, "1 s, 1 passed, 0 failed, 1 skipped"]);
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
      ["Linux 6.1", "clones", "FAILED"],
      ["a file that does not load", "a file that does not load", "FAILED"],
    ],
  );
});
