import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { KEPT_PIPES_LIMIT } from "../../../src/agent/domain/index.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { NEEDS_INSIGHT } from "../../fixtures/privileges.ts";
import { cpuMsWithin, killIfThere, openDescriptors, processesWith } from "../../fixtures/proc.ts";
import { connect, exec, ExecStream } from "../../fixtures/exec-stream.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

/** How long CPU time is sampled. */
const LOOK_MS = 1_000;
const HOUR_MS = 3_600_000;
/** Writes lines for ever, and their number into the file `$1`; 40,000 are more than a pipe holds. */
const TALKER = 'i=0; while :; do i=$((i+1)); echo line; echo $i > "$1"; sleep 0.01; done';
const IN_BACKGROUND = ["sh", "-c", 'sh -c "$0" sh "$1" & exit 0', TALKER];

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(
  await startAgent({ hooks: { preSnapshot: { args: [...IN_BACKGROUND, join(directory, "hook")] } } }),
);

/** Lines that the talker has written, as it counts them itself. */
function linesOf(name: string): number {
  const path = join(directory, name);
  return existsSync(path) ? Number(readFileSync(path, "utf8")) : 0;
}

/** Resolves when the talker has written many more lines. */
async function goesOnTalking(name: string): Promise<void> {
  const enough = linesOf(name) + 50;
  await until(
    () => linesOf(name) >= enough,
    () => `the talker has written ${enough} lines: there are ${linesOf(name)}`,
  );
}

async function endTalker(name: string): Promise<void> {
  // Between fork and execve its children have its command line, so that one round may leave some.
  await until(async () => {
    const pids = await talkers(name);
    for (const pid of pids) killIfThere(pid);
    return pids.length === 0;
  }, `the talker ${name} has ended`);
}

function talkers(name: string): Promise<number[]> {
  return processesWith(join(directory, name));
}

const descriptors = (): number => openDescriptors(agent.pid).length;

describe("a background process that keeps writing to its output", () => {
  it("an exec's background process can write after the exec has ended", async () => {
    const { exit } = await exec(agent, { args: [...IN_BACKGROUND, join(directory, "exec")] });
    assert.deepEqual([exit.code, exit.outputComplete], [0, false]);
    await goesOnTalking("exec");
    await endTalker("exec");
  });

  it("a daemon of a cancelled exec can still write output", async () => {
    using stream = new ExecStream(agent);
    const line = 'setsid sh -c "$0" sh "$1" & exec sleep 1000';
    await stream.start({ args: ["sh", "-c", line, TALKER, join(directory, "daemon")] }).until("line");
    stream.cancel();
    await goesOnTalking("daemon");
    await endTalker("daemon");
  });

  it("a hook's background process can write after the hook has ended", async () => {
    using client = clientOf(agent);
    const { exitCode, timedOut } = await client.snapshots.prepare();
    assert.deepEqual([exitCode, timedOut], [0, false]);
    await goesOnTalking("hook");
    await endTalker("hook");
  });

  it("ready_cmd's background process can write after ready_cmd has ended", async () => {
    const ready = { args: [...IN_BACKGROUND, join(directory, "ready")], interval_ms: HOUR_MS };
    await using other = await startAgent({ process: { ready_cmd: ready } });
    await other.logged("readiness_changed");
    await goesOnTalking("ready");
    await endTalker("ready");
  });
});

describe("output that is kept for a background process", () => {
  it("idle background processes cost no CPU; their pipes close when they end", NEEDS_INSIGHT, async () => {
    await exec(agent, { args: ["true"] });
    const earlier = descriptors();
    const seconds = `47${process.pid}.125`;
    await exec(agent, { args: ["sh", "-c", `sleep ${seconds} &`] });
    assert.ok(descriptors() > earlier);
    const usedMs = await cpuMsWithin(agent.pid, LOOK_MS);
    assert.ok(usedMs < LOOK_MS / 2, `${usedMs} ms`);
    for (const pid of await processesWith(seconds)) killIfThere(pid);
    await until(() => descriptors() <= earlier, "the agent has closed the pipe");
  });

  it("a flooding background process does not keep the agent busy", async () => {
    await exec(agent, { args: ["sh", "-c", `yes ${directory} &`] });
    const usedMs = await cpuMsWithin(agent.pid, LOOK_MS);
    const [flooder] = await processesWith(`yes\0${directory}`);
    assert.ok(flooder !== undefined, "it lives");
    process.kill(flooder, "SIGKILL");
    assert.ok(usedMs < LOOK_MS / 2, `${usedMs} ms`);
  });

  it("the agent closes the oldest pipe when background processes hold too many", async () => {
    const seconds = `47${process.pid}.250`;
    const client = connect(agent);
    try {
      for (let left = 0; left <= KEPT_PIPES_LIMIT / 2; left++) {
        using stream = new ExecStream(agent, client);
        await stream
          .start({ args: ["sh", "-c", `sleep ${seconds} &`] })
          .end()
          .outcome();
      }
      const { level, limit } = await agent.logged("kept_pipe_closed");
      assert.deepEqual([level, limit], ["warn", KEPT_PIPES_LIMIT]);
    } finally {
      client.close();
      for (const pid of await processesWith(seconds)) killIfThere(pid);
    }
  });
});

describe("output_complete", () => {
  it("the exit frame waits briefly for a background process to close its output", async () => {
    const seconds = `47${process.pid}.375`;
    const args = ["sh", "-c", `sleep ${seconds} >/dev/null 2>&1 & echo hi`];
    const rounds: number[] = [];
    // Without the second look 4 of 20 succeed. Under heavy load its 20 ms can be too short, but not in every round.
    while (rounds.length < 10 && (rounds.at(-1) ?? 0) < 12) {
      let complete = 0;
      for (let run = 0; run < 20; run++) {
        const { exit, stdout } = await exec(agent, { args });
        assert.equal(String(stdout), "hi\n");
        if (exit.outputComplete) complete++;
      }
      rounds.push(complete);
    }
    for (const pid of await processesWith(seconds)) killIfThere(pid);
    assert.ok((rounds.at(-1) ?? 0) >= 12, `complete, of 20 in each round: ${rounds.join(", ")}`);
  });
});
