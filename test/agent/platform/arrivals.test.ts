import assert from "node:assert/strict";
import { test } from "node:test";
import { arrivalsWatcher } from "../../../src/agent/platform/arrivals.ts";
import { openDescriptors } from "../../fixtures/proc.ts";
import { addon } from "../../fixtures/spawning.ts";

test("a listener that cannot be watched for arrivals works all the same, and leaves no descriptor", () => {
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
