import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { buildNative } from "../../../scripts/build-native.ts";

/** Prints in how many regions of 1 GiB, each with page tables of its own, anonymous memory lies. */
const COUNT = `const kept = Array.from({ length: 300_000 }, (_, n) => ({ n }));
  const maps = require("node:fs").readFileSync("/proc/self/maps", "utf8").matchAll(/^(\\w+)-\\w+ rw-p 0+ 00:00 0 *$/gm);
  console.log(new Set(Array.from(maps, ([, start]) => BigInt("0x" + start) >> 30n)).size, kept.length);`;

function regions(env: NodeJS.ProcessEnv): number {
  return Number.parseInt(execFileSync(process.execPath, ["-e", COUNT], { env, encoding: "utf8" }), 10);
}

test("with the addon loaded before the C library, the pieces of V8's heap lie side by side", () => {
  const scattered = regions({});
  assert.ok(scattered > 20, `${scattered} regions without it`);
  const together = regions({ LD_PRELOAD: buildNative() });
  assert.ok(together < 8, `${together} regions with it`);
});
