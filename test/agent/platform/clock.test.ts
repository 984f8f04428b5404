import assert from "node:assert/strict";
import { test } from "node:test";
import { guestClock } from "../../../src/agent/platform/index.ts";
import { addon } from "../../fixtures/spawning.ts";

test("the monotonic clock does not run backwards", () => {
  const clock = guestClock(addon);
  const first = clock.monotonicMs();
  assert.ok(clock.monotonicMs() >= first);
});
