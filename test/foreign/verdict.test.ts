import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Failure, type Suite, Unavailable } from "./suite.ts";
import { tableOf } from "./table.ts";
import { judge } from "./verdict.ts";

function suite(failures: readonly Failure[], parts: Partial<Suite> = {}): Suite {
  return {
    name: "some",
    about: "",
    cases: 3,
    differences: {},
    run: () => Promise.resolve({ version: "1.2", cases: 3, failures }),
    ...parts,
  };
}

const FAILURE: Failure = { name: "5.1: a case", problem: "GOAWAY instead of RST_STREAM" };

describe("the verdict on a foreign suite", () => {
  test("names a failed case and what came of it", async () => {
    const verdict = await judge(suite([FAILURE]), true);
    assert.deepEqual(verdict.problems, ["some: 5.1: a case: GOAWAY instead of RST_STREAM"]);
    const { lines, succeeded } = tableOf([verdict]);
    assert.equal(succeeded, false);
    assert.equal(lines.at(-1), "2 passed, 1 failed, 0 skipped");
  });

  test("fails for a known difference that is none any more", async () => {
    const { problems } = await judge(suite([], { differences: { "5.1: a case": "a reason" } }), true);
    assert.deepEqual(problems, ["some: 5.1: a case: passes, but is listed as a known difference"]);
  });

  test("fails when the suite ran only a part of its cases", async () => {
    const { problems } = await judge(suite([], { cases: 4 }), true);
    assert.deepEqual(problems, ["some: 3 cases ran, of 4"]);
  });

  test("of a suite that cannot be installed is a failure where it has to run, and told elsewhere", async () => {
    const absent = suite([], { run: () => Promise.reject(new Unavailable("needs Go")) });
    assert.deepEqual((await judge(absent, true)).problems, ["some cannot be installed: needs Go"]);
    const { lines, succeeded } = tableOf([await judge(absent, false)]);
    assert.equal(succeeded, true);
    assert.deepEqual(lines.slice(-2), ["  some: needs Go", "0 passed, 0 failed, 1 skipped"]);
  });
});
