import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { buildNative } from "../../../scripts/build-native.ts";

/** Prints the idle time, in milliseconds, that Node has measured after a wait. */
const WAIT = `setTimeout(() => console.log(require("node:perf_hooks").performance.nodeTiming.idleTime), 50)`;

function measuredMs(before: string): number {
  return Number(execFileSync(process.execPath, ["-e", `${before};${WAIT}`], { encoding: "utf8" }));
}

test("with the addon, libuv does not measure how long the event loop waits", () => {
  assert.ok(measuredMs("") > 0, "without it, it does");
  assert.equal(measuredMs(`process.dlopen({ exports: {} }, ${JSON.stringify(buildNative())})`), 0);
});
