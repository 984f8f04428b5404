import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { machineIsIdle } from "../../../src/agent/platform/index.ts";
import { awake } from "../../fixtures/awake.ts";

test("a machine half of whose CPUs work is not idle", async () => {
  const busy = Array.from({ length: Math.ceil(availableParallelism() / 2) }, () =>
    spawn(process.execPath, ["-e", "console.log(1); for (;;);"], { stdio: ["ignore", "pipe", "inherit"] }),
  );
  try {
    await Promise.all(busy.map((child) => new Promise((resolve) => child.stdout.once("data", resolve))));
    assert.equal(await awake(machineIsIdle(new AbortController().signal)), false);
  } finally {
    for (const child of busy) child.kill("SIGKILL");
  }
});

test("whoever no longer needs to know is not kept waiting", async () => {
  const controller = new AbortController();
  const answer = machineIsIdle(controller.signal);
  controller.abort();
  assert.equal(await awake(answer), false);
  assert.equal(await awake(machineIsIdle(AbortSignal.abort())), false);
});
