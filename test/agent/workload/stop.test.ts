import assert from "node:assert/strict";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, test } from "node:test";
import { buildNative } from "../../../scripts/build-native.ts";
import { describeEnd } from "../../../src/agent/workload/describe-end.ts";
import { AGENT_COMMAND, AGENT_SCRIPT, type AgentCommand, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { fuseMount } from "../../fixtures/programs/index.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { makeLauncherBundle } from "../../fixtures/bundles.ts";
import { processesWith } from "../../fixtures/proc.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";

/** A sleep time that only one test of this run uses: it identifies its processes. */
function mark(fraction: number): string {
  return `46${process.pid}.${fraction}`;
}

const directory = forAllTests(await testDirectory()).path;
const bundle = forAllTests(makeLauncherBundle());
copyFileSync(buildNative(), join(bundle.directory, "agent.node"));

describe("the end of the grace period", () => {
  it("after the grace period, a stopping agent kills daemons that ignore SIGTERM", async () => {
    const seconds = mark(125);
    const daemon = `trap '' TERM; echo up; sleep ${seconds}`;
    await using agent = await startAgent({
      process: { args: ["sh", "-c", 'setsid sh -c "$0" & wait', daemon], stopGraceMs: 500 },
    });
    await agent.printed(/up/);
    assert.deepEqual(await agent.stop(), { code: 143, signal: null });
    assert.deepEqual(await processesWith(seconds), []);
    assert.equal(agent.log.find(({ event }) => event === "workload_killed")?.["outcome"], "killed");
  });
});

describe("Stop", () => {
  const cleaning = (output: string): string[] => [
    "sh",
    "-c",
    `trap 'until test -e "$0.go"; do sleep 0.02; done; echo cleaned up >> "$0"; exit 5' TERM; echo up; while :; do sleep 0.05; done`,
    output,
  ];

  it("Stop answers with the grace period, and the workload cleans up", async () => {
    const output = join(directory, "asked");
    await using agent = await startAgent({ process: { args: cleaning(output), stopGraceMs: 60_000 } });
    await agent.printed(/up/);
    using client = clientOf(agent);
    assert.equal((await client.stop()).stopGraceMs, 60_000);
    await assert.rejects(client.stop(), { status: "UNAVAILABLE", reason: "SHUTTING_DOWN" });
    writeFileSync(`${output}.go`, "");
    assert.deepEqual(await agent.exited, { code: 5, signal: null });
    assert.equal(readFileSync(output, "utf8"), "cleaned up\n");
    assert.ok(agent.log.some(({ event }) => event === "stop_requested"));
  });

  it("Stop kills a workload at the end of its grace period", async () => {
    const args = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"];
    await using agent = await startAgent({ process: { args, stopGraceMs: 500 } });
    await agent.printed(/up/);
    using client = clientOf(agent);
    await client.stop();
    assert.deepEqual(await agent.exited, { code: 137, signal: null });
  });

  it("Stop without a workload ends commands and exits with 0", async () => {
    await using agent = await startAgent({});
    using client = clientOf(agent);
    const command = client.start(["sleep", "1000"]);
    await command.started;
    assert.equal((await client.stop()).stopGraceMs, 0);
    assert.equal((await command.wait()).signal, "SIGTERM");
    assert.deepEqual(await agent.exited, { code: 0, signal: null });
  });
});

describe("a stop below the launcher as subreaper", () => {
  const launched = (): AgentCommand => [bundle.launcher, AGENT_SCRIPT];
  const forkedTwice = ["sh", "-c", '(setsid sh -c "$0" "$1" &); exec sleep 1000'];

  it("a stopping agent gives daemons that forked twice time to clean up", async () => {
    const output = join(directory, "daemon");
    const daemon = `trap 'sleep 0.3; echo cleaned up >> "$0"; exit' TERM; echo up > "$0"; while :; do sleep 0.05; done`;
    await using agent = await startAgent({
      command: launched(),
      process: { args: [...forkedTwice, daemon, output] },
    });
    await until(async () => (await exec(agent, { args: ["test", "-s", output] })).exit.code === 0, "the daemon is up");
    await agent.stop();
    assert.equal(readFileSync(output, "utf8"), "up\ncleaned up\n");
  });

  it("a stopping agent leaves no daemons or background processes after the grace period", async () => {
    const [daemon, left] = [mark(250), mark(375)];
    await using agent = await startAgent({
      command: launched(),
      process: { args: [...forkedTwice, `trap '' TERM; echo up; sleep ${daemon}; :`], stopGraceMs: 500 },
    });
    await agent.printed(/up/);
    const line = `trap '' TERM; setsid sleep ${left} >/dev/null 2>&1 &`;
    assert.equal((await exec(agent, { args: ["sh", "-c", line] })).exit.code, 0);
    await agent.stop();
    assert.deepEqual([...(await processesWith(daemon)), ...(await processesWith(left))], []);
  });
});

describe("a workload whose start hangs in a dead file system", NEEDS_FUSE, () => {
  for (const [signal, code] of [
    ["SIGTERM", 143],
    ["SIGINT", 130],
  ] as const) {
    it(`the agent exits with ${code} on ${signal} while the workload's start hangs`, async () => {
      const mountPoint = join(directory, `hang-${code}`);
      await using _mount = await fuseMount("hanging_mount", mountPoint);
      await using agent = await startAgent({
        process: { args: ["sleep", "1000"], cwd: mountPoint },
        command: AGENT_COMMAND,
        awaitListening: false,
      });
      await agent.logged("workload_socket_listening");
      agent.kill(signal);
      assert.deepEqual(await agent.exited, { code, signal: null });
      assert.ok(agent.log.some(({ event }) => event === "workload_start_abandoned"));
      assert.ok(!agent.log.some(({ event }) => event === "management_listening"));
    });
  }
});

const exit = (code: number) => ({ code, signal: 0, coreDumped: false });
const death = (signal: number) => ({ code: 128 + signal, signal, coreDumped: false });

test("describeEnd says why a workload ended, if the cause is known", () => {
  for (const [said, ...of] of [
    ["exited with status 0", exit(0), false, undefined],
    ["exited with status 3", exit(3), undefined, undefined],
    ["exited with status 3, after the kernel's OOM killer killed one of its processes", exit(3), true, undefined],
    ["was killed by SIGKILL: out of memory (killed by the kernel's OOM killer)", death(9), true, undefined],
    ["was killed by SIGKILL: by a process in the guest, not by the OOM killer", death(9), false, undefined],
    [
      "was killed by SIGKILL; whether the workload ran out of memory is unknown, because the guest has no cgroup memory controller",
      death(9),
      undefined,
      undefined,
    ],
    ["was killed by SIGKILL: it was asked to stop and did not end within stop_grace_ms", death(9), false, "stop"],
    ["was killed by SIGTERM, because it was asked to stop", death(15), false, "stop"],
    ["exited with status 0, because it was asked to stop", exit(0), false, "stop"],
    [
      "was killed by SIGKILL: the agent killed it while it was frozen, because the restore steps had rejected a spec file",
      death(9),
      false,
      "kill_frozen",
    ],
    ["was killed by SIGSEGV (core dumped)", { ...death(11), coreDumped: true }, false, undefined],
    ["was killed by signal 40", death(40), false, undefined],
    ["exited with status 137: by a process in the guest, not by the OOM killer", exit(137), false, undefined],
  ] as const)
    assert.equal(describeEnd(of[0], of[1], of[2]), `the workload ${said}`);
});

test("the last log line reports how the workload ended", async () => {
  for (const [script, reason] of [
    ["exit 3", /^the workload exited with status 3$/],
    ["kill -9 $$", /^the workload was killed by SIGKILL[:;] /],
  ] as const) {
    await using agent = await startAgent({ process: { args: ["sh", "-c", script] }, awaitListening: false });
    const { code } = await agent.exited;
    const last = agent.log.at(-1);
    assert.deepEqual([last?.event, last?.["status"]], ["agent_ended", code]);
    assert.match(String(last?.["reason"]), reason);
    const ended = agent.log.find(({ event }) => event === "workload_ended");
    assert.deepEqual([ended?.["core_dumped"], typeof ended?.["cpu_user_us"]], [false, "number"]);
  }
  await using idle = await startAgent();
  await idle.stop();
  assert.deepEqual(idle.log.at(-1)?.["reason"], "the agent was asked to stop and had no workload");
});
