import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ChildProcess, ProcessEnd, ReadyCommandSpec } from "../../../src/agent/domain/index.ts";
import { ReadinessLoop } from "../../../src/agent/health/index.ts";
import { ManualTimers } from "../../fixtures/manual-timers.ts";
import { recordingLog } from "../../fixtures/recording-log.ts";

/** A run of ready_cmd whose end the test decides. */
class Run {
  readonly #end = Promise.withResolvers<ProcessEnd>();
  readonly killed = Promise.withResolvers<void>();
  released = false;

  exit(code: number): void {
    this.#end.resolve({ code, signal: 0, coreDumped: false });
  }

  get child(): ChildProcess {
    return {
      pid: 4711,
      stdin: undefined,
      stdout: undefined,
      stderr: undefined,
      ended: this.#end.promise,
      resize: () => {},
      signal: () => {},
      signalGroup: () => {},
      tree: {
        signal: (signal) => {
          this.#end.resolve({ code: 128 + signal, signal, coreDumped: false });
          this.killed.resolve();
          return Promise.resolve();
        },
        emptyWithin: () => Promise.resolve(true),
        killWithin: () => Promise.resolve(true),
      },
      session: {
        signal: () => Promise.resolve(),
        emptyWithin: () => Promise.resolve(true),
        killWithin: () => Promise.resolve(true),
      },
      accounts: () => ({ oomKilled: undefined, usage: undefined }),
      outputHolders: () => [],
      release: () => void (this.released = true),
    };
  }
}

const SPEC: ReadyCommandSpec = { args: ["check"], intervalMs: 1_000, timeoutMs: 5_000 };

/** Lets everything run that only waits for its turn. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function loop(start?: () => Promise<ChildProcess>): { loop: ReadinessLoop; runs: Run[]; timers: ManualTimers } {
  const runs: Run[] = [];
  const timers = new ManualTimers();
  const startRun = async (): Promise<ChildProcess> => {
    const run = new Run();
    runs.push(run);
    return run.child;
  };
  const readiness = new ReadinessLoop({ spec: SPEC, start: start ?? startRun, timers, log: recordingLog() });
  return { loop: readiness, runs, timers };
}

async function end(run: Run | undefined, code: number): Promise<void> {
  assert.ok(run !== undefined, "it was not started");
  run.exit(code);
  await settle();
  assert.ok(run.released);
}

describe("readiness", () => {
  it("is the verdict of the last run, while the next one is in progress too", async () => {
    const { loop: readiness, runs, timers } = loop();
    readiness.runNow();
    await settle();
    await end(runs[0], 0);
    assert.deepEqual(readiness.verdict, { ready: true, exitCode: 0 });
    timers.advance(1_000);
    await settle();
    assert.deepEqual(readiness.verdict, { ready: true, exitCode: 0 });
    await end(runs[1], 3);
    assert.deepEqual(readiness.verdict, { ready: false, exitCode: 3 });
  });

  it("is asked again an interval after the last run's end, not its start", async () => {
    const { loop: readiness, runs, timers } = loop();
    readiness.runNow();
    await settle();
    timers.advance(4_000);
    await end(runs[0], 0);
    timers.advance(999);
    await settle();
    assert.equal(runs.length, 1);
    timers.advance(1);
    await settle();
    assert.equal(runs.length, 2);
    timers.advance(5_000);
    await settle();
    assert.deepEqual(readiness.verdict, { ready: false, exitCode: 124 });
    timers.advance(1_000);
    await settle();
    assert.equal(runs.length, 3, "also after one that was killed at its timeout");
  });

  it("is asked at once when what was known is out of date, forgets the run in progress, and ends with the stop", async () => {
    const { loop: readiness, runs, timers } = loop();
    readiness.runNow();
    await settle();
    readiness.runNow();
    await settle();
    assert.equal(runs.length, 2);
    assert.ok(runs[0]?.released, "the first one is killed");
    assert.deepEqual(readiness.verdict, { ready: false, exitCode: -1 }, "and its end is no verdict");
    await end(runs[1], 0);
    readiness.runNow();
    await settle();
    assert.equal(runs.length, 3, "also while it waits");
    await end(runs[2], 0);
    timers.advance(1_000);
    await settle();
    assert.equal(runs.length, 4, "and there is one loop, not two");
    await readiness.stop();
    assert.ok(runs[3]?.released, "the stop ends a run");
    readiness.runNow();
    timers.advance(10_000);
    await settle();
    assert.equal(runs.length, 4, "and none begins after it");
  });
});
