import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { guestKernel, processRandomness } from "../../../../src/agent/platform/index.ts";
import { addon } from "../../../fixtures/spawning.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";

const kernel = guestKernel(addon);

describe("the kernel", () => {
  it("has an entropy device that can be opened again and again", NEEDS_ROOT, () => {
    for (let round = 0; round < 3; round++) {
      const device = kernel.openEntropyDevice();
      assert.ok(typeof device !== "string");
      device.close();
    }
  });

  it("steps the clock: here to the time that it is, some microseconds late", NEEDS_ROOT, () => {
    assert.equal(kernel.stepClock(addon.realtimeNs()), undefined);
  });

  it("refuses times before 1970 and those that its clock cannot hold", () => {
    for (const ns of [-1n, -(2n ** 63n), 2n ** 63n, 2n ** 70n])
      assert.equal(kernel.stepClock(ns), "EINVAL", String(ns));
  });
});

describe("the generators of the process", () => {
  it("can be reseeded", () => {
    assert.equal(processRandomness(addon).reseed(new Uint8Array(64)), undefined);
  });
});
