import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Dials, Gate, Turns } from "../../../src/node/sandboxes/state/gate.ts";

/** Longer than a permit lasts. */
const BUSY_MS = 3_000;
/** Longer than one of the timers that a permit's life is divided into. */
const BLOCK_MS = 150;
const SHORT_BLOCK_MS = 20;

test("connection permits do not expire while the event loop is mostly blocked", async () => {
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

test("`Gate` grants fewer permits while the process lacks CPU time", async () => {
  const gate = new Gate({ places: 4, placesIfStarved: 2, limitMs: 500 });
  const held = [await gate.enter(), await gate.enter()];
  block();
  await turn();
  block();
  await turn();
  let granted = 0;
  const waiting = Array.from({ length: 2 }, async () => {
    const leave = await gate.enter();
    granted++;
    return leave;
  });
  for (let at = 0; at < 5; at++) {
    block();
    await turn();
  }
  assert.equal(granted, 0);
  // The rest is granted as soon as this process has time, although nobody has released a permit.
  for (const leave of await Promise.all(waiting)) leave();
  for (const leave of held) leave();
});

test("permits of `Gate` expire eventually even if the process always lacks CPU time", async () => {
  const gate = new Gate({ places: 1, limitMs: 100, starvedShare: 0.25 });
  const begunMs = performance.now();
  const expiredMs: number[] = [];
  await gate.enter(() => expiredMs.push(performance.now() - begunMs));
  while (expiredMs.length === 0) {
    block(SHORT_BLOCK_MS);
    await turn();
  }
  // 10 timers, each of which counts a quarter, fire at most once in a turn of the event loop.
  assert.ok((expiredMs[0] ?? 0) >= 4 * 10 * SHORT_BLOCK_MS, `expired after ${expiredMs[0]} ms`);
});

test("`Turns` lets one caller continue in each turn of the event loop", async () => {
  const turns = new Turns();
  let at = 0;
  let isOver = false;
  const continued: [caller: number, turn: number][] = [];
  const count = (): void => {
    at++;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  await Promise.all(
    Array.from({ length: 50 }, async (_, caller) => {
      await turns.next();
      continued.push([caller, at]);
    }),
  );
  isOver = true;
  assert.deepEqual(
    continued.map(([caller]) => caller),
    Array.from({ length: 50 }, (_, caller) => caller),
  );
  assert.equal(new Set(continued.map(([, one]) => one)).size, 50);
  await turns.next();
});

/** Keeps the event loop from running, as a quota that is used up does. */
function block(lengthMs = BLOCK_MS): void {
  for (const untilMs = performance.now() + lengthMs; performance.now() < untilMs;);
}
