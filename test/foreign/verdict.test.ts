import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Outcome, type Suite, Unavailable } from "./suite.ts";
import { judge, tableOf } from "./verdict.ts";

const suite = (outcome: () => Promise<Outcome>): Suite => ({ name: "some", about: "", cases: 3, run: outcome });
const RUN: Outcome = { version: "1.2", cases: 3, failures: [] };

describe("the verdict on a foreign suite", () => {
  for (const [what, outcome, problem, line] of [
    [
      "names a failed case and what came of it",
      { ...RUN, failures: [{ name: "5.1: a case", problem: "GOAWAY instead of RST_STREAM" }] },
      "some: 5.1: a case: GOAWAY instead of RST_STREAM",
      "2 passed, 1 failed, 0 skipped",
    ],
    [
      "fails when the suite ran only a part of its cases",
      { ...RUN, cases: 2 },
      "some: 2 cases ran, of 3",
      "2 passed, 1 failed, 0 skipped",
    ],
  ] as const)
    test(what, async () => {
      const verdict = await judge(
        suite(() => Promise.resolve(outcome)),
        true,
      );
      assert.deepEqual(verdict.problems, [problem]);
      const { lines, succeeded } = tableOf([verdict]);
      assert.deepEqual([succeeded, lines.at(-1)], [false, line]);
    });

  test("of a suite that cannot be installed is a failure where it has to run, and told elsewhere", async () => {
    const absent = suite(() => Promise.reject(new Unavailable("needs Go")));
    assert.deepEqual((await judge(absent, true)).problems, ["some cannot be installed: needs Go"]);
    const { lines, succeeded } = tableOf([await judge(absent, false)]);
    assert.equal(succeeded, true);
    assert.deepEqual(lines.slice(-2), ["  some: needs Go", "0 passed, 0 failed, 1 skipped"]);
  });
});
