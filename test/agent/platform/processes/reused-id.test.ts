import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { NEEDS_NAMESPACES } from "../../../fixtures/namespaces.ts";
import { script } from "../../../fixtures/programs/index.ts";
import { addon } from "../../../fixtures/spawning.ts";

const SIGKILL = 9;

test(
  "a process whose id was given to another between the look and the signal: the other one gets none",
  NEEDS_NAMESPACES,
  () => {
    const { stdout, stderr } = spawnSync("unshare", ["-pf", "--kill-child", "--mount-proc", ...script("reuse-id")], {
      encoding: "utf8",
      timeout: 500_000,
    });
    const spared = { outsiderHasTheId: true, outsiderLives: true };
    assert.notEqual(stdout, "", stderr);
    assert.deepEqual(JSON.parse(stdout), { signalled: spared, killed: spared, contained: spared });
  },
);

test("a process is signalled by id and start time together", () => {
  const own = addon.processRows(Int32Array.of(process.pid));
  assert.ok(typeof own !== "number");
  const start = own[5] ?? 0;
  assert.equal(addon.signalProcess(process.pid, start, 0), 0);
  assert.equal(addon.signalProcess(process.pid, start + 1, SIGKILL), -3);
  assert.equal(addon.signalProcess(1, start, 0), -22);
});
