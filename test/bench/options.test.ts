import assert from "node:assert/strict";
import { test } from "node:test";
import { GROUPS } from "../../scripts/bench/groups.ts";
import { readOptions } from "../../scripts/bench/options.ts";

test("all groups are measured unless some are named, and in their own order", () => {
  assert.deepEqual([...readOptions([]).groups], [...GROUPS]);
  assert.deepEqual([...readOptions(["--rows=files,health"]).groups], ["health", "files"]);
});

test("an unknown group is refused by its name", () => {
  assert.throws(() => readOptions(["--rows=health,nothing"]), /there is no group "nothing"/);
});

test("idle comes before the groups that have servers of their own, so that it is soon after the loads", () => {
  assert.ok(GROUPS.indexOf("idle") < GROUPS.indexOf("first-execs"));
});
