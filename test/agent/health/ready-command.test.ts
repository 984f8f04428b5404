import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { Health } from "../../../src/node/client/index.ts";
import { testFolder } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { noProcessWith } from "../../fixtures/processes.ts";

const HOUR_MS = 3_600_000;

const folder = forAllTests(await testFolder()).path;

/** Calls Health until the answer is as wanted. */
async function healthOnce(agent: RunningAgent, holds: (health: Health) => boolean): Promise<Health> {
  using client = clientOf(agent);
  let health = await client.health();
  await until(
    async () => holds((health = await client.health())),
    () => `${String(holds)}; it says ${health.ready}, ${health.readyCmdExit}`,
  );
  return health;
}

describe("ready_cmd", () => {
  it("gives the verdict again and again, in the environment of an exec'd command", async () => {
    const flag = join(folder, "ready");
    await using agent = await startAgent({
      process: {
        args: ["sleep", "1000"],
        env: { FLAG: flag },
        ready_cmd: { args: ["sh", "-c", '[ -z "$SVC_WORKLOAD_SOCKET" ] && [ -e "$FLAG" ] || exit 5'], interval_ms: 20 },
      },
    });
    assert.equal((await healthOnce(agent, (health) => health.readyCmdExit === 5)).ready, false);
    await writeFile(flag, "");
    assert.equal((await healthOnce(agent, (health) => health.ready)).readyCmdExit, 0);
    await rm(flag);
    assert.equal((await healthOnce(agent, (health) => !health.ready)).readyCmdExit, 5);
  });

  it("may write as much as it likes", async () => {
    await using agent = await startAgent({
      process: { ready_cmd: { args: ["sh", "-c", "head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2"] } },
    });
    assert.equal((await healthOnce(agent, (health) => health.readyCmdExit !== -1)).ready, true);
  });

  it("may have a pause and a timeout of weeks, longer than any timer of Node", async () => {
    const runs = join(folder, "runs");
    const weeks = { interval_ms: 2 ** 32 - 1, timeout_ms: 2 ** 32 - 1 };
    await using agent = await startAgent({
      process: { ready_cmd: { args: ["sh", "-c", 'echo run >> "$0"; sleep 0.1', runs], ...weeks } },
    });
    assert.equal((await agent.logged("readiness_changed"))["exit_code"], 0);
    for (let later = 0; later < 20; later++) await exec(agent, { args: ["true"] });
    assert.equal(await readFile(runs, "utf8"), "run\n");
  });

  it("that is not there is 127, and one that cannot start 126", async () => {
    for (const [command, code] of [
      ["no-such-command", 127],
      ["/etc/passwd", 126],
    ] as const) {
      await using agent = await startAgent({ process: { ready_cmd: { args: [command] } } });
      assert.equal((await healthOnce(agent, (health) => health.readyCmdExit !== -1)).readyCmdExit, code);
    }
  });

  it("runs at once after the restore duties, and never counts as user activity", async () => {
    const flag = join(folder, "after-restore");
    await using agent = await startAgent({
      process: { ready_cmd: { args: ["test", "-e", flag], interval_ms: HOUR_MS } },
    });
    const earlier = await healthOnce(agent, (health) => health.readyCmdExit === 1);
    await writeFile(flag, "");
    using client = clientOf(agent);
    await client.runRestoreDuties({ entropy: new Uint8Array(32).fill(1) });
    const later = await healthOnce(agent, (health) => health.ready);
    assert.ok(earlier.lastUserActivity !== undefined && later.lastUserActivity !== undefined);
    assert.equal(later.lastUserActivity.getTime(), earlier.lastUserActivity.getTime());
  });

  it("ends with the agent", async () => {
    const mark = `1000.${Date.now()}`;
    const began = join(folder, "began");
    await using agent = await startAgent({
      process: {
        ready_cmd: { args: ["sh", "-c", `touch ${began}; sleep ${mark}`], timeout_ms: HOUR_MS },
      },
    });
    await until(() => existsSync(began), "it has begun");
    assert.equal((await agent.stop()).code, 0);
    await noProcessWith(mark);
  });
});
