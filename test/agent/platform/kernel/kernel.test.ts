import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { guestKernel } from "../../../../src/agent/platform/index.ts";
import { addon } from "../../../fixtures/spawning.ts";

const kernel = guestKernel(addon);

describe("the kernel", () => {
  it("refuses times before 1970 and those that its clock cannot hold", () => {
    for (const ns of [-1n, -(2n ** 63n), 2n ** 63n, 2n ** 70n])
      assert.equal(kernel.stepClock(ns), "EINVAL", String(ns));
  });
});
