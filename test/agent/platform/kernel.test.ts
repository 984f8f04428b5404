import assert from "node:assert/strict";
import { describe, it, test } from "node:test";
import { arrivalsWatcher } from "../../../src/agent/platform/arrivals.ts";
import { guestKernel } from "../../../src/agent/platform/index.ts";
import { confirmsReseed } from "../../../src/agent/platform/random-device.ts";
import { openDescriptors } from "../../fixtures/proc.ts";
import { addon } from "../../fixtures/spawning.ts";

it("confirmsReseed is true only for kernels with the new random number generator", () => {
  const answers: Readonly<Record<string, boolean>> = {
    "6.18.44": true,
    "10.0": true,
    "5.18.0-rc1": true,
    "5.18.0": true,
    "5.17.15": false,
    "5.15.44-custom": true,
    "5.15.43": false,
    "5.15.0-91-generic": false,
    "5.10.119": true,
    "5.10.118": false,
    "5.10": false,
    "4.19.320": false,
    "3.10.0-1160.el7.x86_64": false,
    "": false,
    custom: false,
  };
  for (const [release, answer] of Object.entries(answers)) assert.equal(confirmsReseed(release), answer, release);
});

describe("the kernel", () => {
  it("stepClock rejects times before 1970 and beyond the clock's range", () => {
    const kernel = guestKernel(addon);
    for (const ns of [-1n, -(2n ** 63n), 2n ** 63n, 2n ** 70n])
      assert.equal(kernel.stepClock(ns), "EINVAL", String(ns));
  });
});

test("arrivalsWatcher leaks no descriptor if FdWatch cannot be created", () => {
  class FdWatch extends addon.FdWatch {
    constructor() {
      // As epoll_ctl(2) refuses a descriptor, for example at the limit of watches.
      super(-1, () => {});
    }
  }
  const before = openDescriptors();
  const stop = arrivalsWatcher({ FdWatch, duplicate: (fd) => addon.duplicate(fd) })(1, () => {});
  stop();
  assert.deepEqual(openDescriptors(), before);
});
