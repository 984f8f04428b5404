import assert from "node:assert/strict";
import { test } from "node:test";
import { guestClock } from "../../../src/agent/platform/index.ts";
import { addon } from "../../fixtures/spawning.ts";

test("the wall clock counts nanoseconds since 1970", () => {
  const before = BigInt(Date.now()) * 1_000_000n;
  assert.ok(guestClock(addon).wallNs() >= before);
});

test("the monotonic clock does not run backwards", () => {
  const clock = guestClock(addon);
  const first = clock.monotonicMs();
  assert.ok(clock.monotonicMs() >= first);
});
