import assert from "node:assert/strict";
import { test } from "node:test";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { HealthWatches } from "../../../src/agent/health/index.ts";

/** Lets everything run that only waits for its turn. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

const SHUTTING_DOWN = new AgentError("UNAVAILABLE", "SHUTTING_DOWN", "the agent is shutting down");

test("a slow Health watcher gets the latest readiness, not each change", async () => {
  let ready = false;
  const watches = new HealthWatches(() => ready);
  const sent: boolean[] = [];
  let take = (): void => {};
  const send = (value: boolean): Promise<void> => {
    sent.push(value);
    return new Promise((resolve) => {
      take = resolve;
    });
  };
  const watch = watches.watch({ isServed: true, send, signal: new AbortController().signal });
  await settle();
  for (const value of [true, false, true]) {
    ready = value;
    watches.changed();
    await settle();
  }
  assert.deepEqual(sent, [false]);
  take();
  await settle();
  assert.deepEqual(sent, [false, true]);
  // The last message is sent although the client has not taken the one before.
  watches.shutDown(SHUTTING_DOWN);
  await assert.rejects(watch, SHUTTING_DOWN);
  assert.deepEqual(sent, [false, true, false]);
});
