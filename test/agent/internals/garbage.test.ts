import assert from "node:assert/strict";
import { test } from "node:test";
import { garbageCollector } from "../../../src/agent/internals/index.ts";

const MIB = 2 ** 20;

/** A function of its own: a suspended one would keep alive what its registers still hold. */
function leaveGarbage(sizeMib: number): void {
  const garbage = Array.from({ length: sizeMib }, () => new Uint8Array(MIB).fill(1));
  assert.equal(garbage.length, sizeMib);
}

test("V8's collector frees garbage before it returns", () => {
  const collect = garbageCollector();
  collect();
  const beforeBytes = process.memoryUsage().arrayBuffers;
  leaveGarbage(64);
  collect();
  assert.ok(process.memoryUsage().arrayBuffers < beforeBytes + 32 * MIB);
});

test("on a V8 without that function nothing happens", () => garbageCollector("noSuchFunction")());
