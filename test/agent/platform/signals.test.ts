import assert from "node:assert/strict";
import { test } from "node:test";
import { launch, request } from "../../fixtures/spawning.ts";
import { script } from "../../fixtures/programs/index.ts";

test("signals are heard by number and in order, those that would stop the process included", async () => {
  await using running = await launch(request(script("hear-signals")));
  await running.stdout.until(/ready\n$/);
  const numbers = [1, 2, 3, 5, 6, 12, 14, 18, 20, 21, 22, 28];
  for (const signal of numbers) {
    running.child.signal(signal);
    await running.stdout.until(new RegExp(`^${signal}\n`, "m"));
  }
  running.child.signal(15);
  assert.equal((await running.child.ended).code, 0);
  assert.equal(running.stdout.text, ["ready", ...numbers, 15, ""].join("\n"));
});

test("SIGUSR1 from a process of the sandbox does not open Node's debugger", async () => {
  await using running = await launch(request(script("hear-signals")));
  await running.stdout.until(/ready/);
  running.child.signal(10);
  await running.stdout.until(/10/);
  running.child.signal(15);
  assert.equal((await running.child.ended).code, 0);
  await running.child.stderr?.drain();
  assert.equal(running.stderr.text, "");
});
