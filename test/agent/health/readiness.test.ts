import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { ChildProcess, ProcessEnd, ReadyCommandSpec } from "../../../src/agent/domain/index.ts";
import { ReadinessLoop } from "../../../src/agent/health/index.ts";
import type { Health } from "../../../src/node/client/index.ts";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { ManualTimers } from "../../fixtures/clocks.ts";
import { noProcessWith } from "../../fixtures/proc.ts";
import { recordingLog } from "../../fixtures/recorders.ts";

const directory = forAllTests(await testDirectory()).path;

/** A run of ready_cmd whose end the test decides. */
class Run {
  readonly #end = Promise.withResolvers<ProcessEnd>();
  released = false;

  exit(code: number, signal = 0): void {
    this.#end.resolve({ code, signal, coreDumped: false });
  }

  /** Of a child what the loop uses. */
  get child(): ChildProcess {
    const signal = async (number: number): Promise<void> => this.exit(128 + number, number);
    const tree = { signal, emptyWithin: () => Promise.resolve(true), killWithin: () => Promise.resolve(true) };
    const child: Partial<ChildProcess> = { ended: this.#end.promise, tree, release: () => void (this.released = true) };
    return child as ChildProcess;
  }
}

const SPEC: ReadyCommandSpec = { args: ["check"], intervalMs: 1_000, timeoutMs: 5_000 };

/** Lets everything run that only waits for its turn. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function loop() {
  const runs: Run[] = [];
  const timers = new ManualTimers();
  const start = async (): Promise<ChildProcess> => {
    const run = new Run();
    runs.push(run);
    return run.child;
  };
  const readiness = new ReadinessLoop({ spec: SPEC, start, onChange: () => {}, timers, log: recordingLog() });
  const pass = (ms: number): Promise<void> => {
    timers.advance(ms);
    return settle();
  };
  return { loop: readiness, runs, pass };
}

async function end(run: Run | undefined, code: number): Promise<void> {
  assert.ok(run !== undefined, "it was not started");
  run.exit(code);
  await settle();
  assert.ok(run.released);
}

describe("readiness", () => {
  it("readiness keeps ready_cmd's last result while the next run is in progress", async () => {
    const { loop: readiness, runs, pass } = loop();
    readiness.runNow();
    await settle();
    await end(runs[0], 0);
    assert.deepEqual(readiness.verdict, { ready: true, exitCode: 0 });
    await pass(1_000);
    assert.deepEqual(readiness.verdict, { ready: true, exitCode: 0 });
    await end(runs[1], 3);
    assert.deepEqual(readiness.verdict, { ready: false, exitCode: 3 });
  });

  it("ready_cmd runs again one interval after its last run has ended", async () => {
    const { loop: readiness, runs, pass } = loop();
    readiness.runNow();
    await settle();
    await pass(4_000);
    await end(runs[0], 0);
    await pass(999);
    assert.equal(runs.length, 1);
    await pass(1);
    assert.equal(runs.length, 2);
    await pass(5_000);
    assert.deepEqual(readiness.verdict, { ready: false, exitCode: 124 });
    await pass(1_000);
    assert.equal(runs.length, 3, "also after one that was killed at its timeout");
  });

  it("runNow() kills and replaces a readiness run in progress; stop() ends the loop", async () => {
    const { loop: readiness, runs, pass } = loop();
    readiness.runNow();
    await settle();
    readiness.runNow();
    await settle();
    assert.equal(runs.length, 2);
    assert.ok(runs[0]?.released, "the first one is killed");
    assert.deepEqual(readiness.verdict, { ready: false, exitCode: -1 }, "and its end does not decide");
    await end(runs[1], 0);
    readiness.runNow();
    await settle();
    assert.equal(runs.length, 3, "also while it waits");
    await end(runs[2], 0);
    await pass(1_000);
    assert.equal(runs.length, 4, "and there is one loop, not two");
    await readiness.stop();
    assert.ok(runs[3]?.released, "the stop ends a run");
    readiness.runNow();
    await pass(10_000);
    assert.equal(runs.length, 4, "and none begins after it");
  });
});

const HOUR_MS = 3_600_000;

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
  it("ready_cmd runs repeatedly in the same environment as an exec'd command", async () => {
    const flag = join(directory, "ready");
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

  it("a ready_cmd that writes 20 MB of output still makes the agent ready", async () => {
    await using agent = await startAgent({
      process: { ready_cmd: { args: ["sh", "-c", "head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2"] } },
    });
    assert.equal((await healthOnce(agent, (health) => health.readyCmdExit !== -1)).ready, true);
  });

  it("ready_cmd accepts an interval and a timeout of weeks", async () => {
    const runs = join(directory, "runs");
    const weeks = { interval_ms: 2 ** 32 - 1, timeout_ms: 2 ** 32 - 1 };
    await using agent = await startAgent({
      process: { ready_cmd: { args: ["sh", "-c", 'echo run >> "$0"; sleep 0.1', runs], ...weeks } },
    });
    assert.equal((await agent.logged("readiness_changed"))["exit_code"], 0);
    for (let later = 0; later < 20; later++) await exec(agent, { args: ["true"] });
    assert.equal(await readFile(runs, "utf8"), "run\n");
  });

  it("readiness reports 127 if ready_cmd is not found, 126 if not executable", async () => {
    for (const [command, code] of [
      ["no-such-command", 127],
      ["/etc/passwd", 126],
    ] as const) {
      await using agent = await startAgent({ process: { ready_cmd: { args: [command] } } });
      assert.equal((await healthOnce(agent, (health) => health.readyCmdExit !== -1)).readyCmdExit, code);
    }
  });

  it("ready_cmd runs right after a restore without counting as user activity", async () => {
    const flag = join(directory, "after-restore");
    await using agent = await startAgent({
      process: { ready_cmd: { args: ["test", "-e", flag], interval_ms: HOUR_MS } },
    });
    const earlier = await healthOnce(agent, (health) => health.readyCmdExit === 1);
    await writeFile(flag, "");
    using client = clientOf(agent);
    await client.snapshots.duties({ entropy: new Uint8Array(32).fill(1) });
    const later = await healthOnce(agent, (health) => health.ready);
    assert.ok(earlier.lastUserActivity !== undefined && later.lastUserActivity !== undefined);
    assert.equal(later.lastUserActivity.getTime(), earlier.lastUserActivity.getTime());
  });

  it("a stopping agent ends a running ready_cmd", async () => {
    const mark = `1000.${Date.now()}`;
    const began = join(directory, "began");
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
