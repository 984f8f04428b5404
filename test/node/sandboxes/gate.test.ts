import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Dials } from "../../../src/node/sandboxes/state/gate.ts";

/** Longer than a permit lasts. */
const BUSY_MS = 3_000;
/** Longer than one of the timers that a permit's life is divided into. */
const BLOCK_MS = 150;

test("connection permits do not expire while this process lacks CPU time", async () => {
  const dials = new Dials();
  let expired = 0;
  const permits = await Promise.all(Array.from({ length: 8 }, () => dials.enter(() => expired++)));
  let isNinthIn = false;
  const ninth = dials.enter().then((leave) => {
    isNinthIn = true;
    return leave;
  });
  for (const untilMs = performance.now() + BUSY_MS; performance.now() < untilMs;) {
    block();
    await turn();
  }
  assert.deepEqual([expired, isNinthIn], [0, false]);
  permits[0]?.();
  const leaveNinth = await ninth;
  // Once this process has time, the permits of silent peers expire, and others can connect.
  await Promise.all(Array.from({ length: 8 }, async () => (await dials.enter())()));
  assert.ok(expired >= 2, `${expired} have expired`);
  leaveNinth();
  for (const leave of permits) leave();
});

/** Keeps the event loop from running, as a quota that is used up does. */
function block(): void {
  for (const untilMs = performance.now() + BLOCK_MS; performance.now() < untilMs;);
}
