import assert from "node:assert/strict";
import { copyFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { buildNative } from "../../../scripts/build-native.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import {
  AGENT_SCRIPT,
  type AgentOptions,
  type RunningAgent,
  SOURCES_COMMAND,
  startAgent,
} from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { makeLauncherBundle } from "../../fixtures/bundles.ts";
import { cgroupMounts, killIfThere, processById, processGone } from "../../fixtures/proc.ts";
import { Ticking } from "../../fixtures/ticking.ts";
import { FIND_CGROUP, needsCgroups, removeCgroups } from "../../fixtures/namespaces.ts";

const LONG_MS = 600_000;

const directory = forAllTests(await testDirectory());
const bundle = forAllTests(makeLauncherBundle());
copyFileSync(buildNative(), join(bundle.directory, "agent.node"));

/** A workload that takes its time to clean up at SIGTERM, which only a running one can. */
function cleaningUp(name: string): readonly string[] {
  const trap = `trap 'sleep 0.5; touch "${directory.at(name)}"; exit 7' TERM`;
  return ["sh", "-c", `${trap}; echo up; while :; do sleep 0.05; done`];
}

/** An agent whose session is frozen. */
async function frozenAgent(options: AgentOptions): Promise<RunningAgent> {
  const agent = await startAgent(options);
  await agent.printed(/up/);
  using client = clientOf(agent);
  const { frozen, freezeProblem } = await client.snapshots.prepare({ freezeMs: LONG_MS });
  assert.deepEqual([frozen, freezeProblem], [true, ""]);
  return agent;
}

function launched(args: readonly string[]): AgentOptions {
  return { command: [bundle.launcher, AGENT_SCRIPT], process: { args, stopGraceMs: 300_000 } };
}

/** The launcher of an agent. */
function launcherOf(agent: RunningAgent): number {
  const parent = processById(agent.pid)?.parent ?? 0;
  assert.match(readFileSync(`/proc/${parent}/cmdline`, "latin1"), /guest-agent/);
  return parent;
}

describe("the thaw of a frozen session", await needsCgroups(), () => {
  it("SIGTERM to the agent thaws a frozen workload and starts its grace period", async () => {
    await using agent = await frozenAgent({ process: { args: cleaningUp("stopped"), stopGraceMs: 300_000 } });
    assert.deepEqual(await agent.stop(), { code: 7, signal: null });
    assert.ok(existsSync(directory.at("stopped")));
  });

  it("SIGINT to the agent thaws a frozen workload and is forwarded to it", async () => {
    const args = ["sh", "-c", "trap 'exit 9' INT; echo up; while :; do sleep 0.05; done"];
    await using agent = await frozenAgent({ process: { args } });
    agent.kill("SIGINT");
    assert.deepEqual(await agent.exited, { code: 9, signal: null });
  });

  it("the launcher thaws a killed agent's session and grants a grace period", async () => {
    const [, , script = ""] = cleaningUp("orphaned");
    const below = `${FIND_CGROUP}; mkdir "$own/of.workload"`;
    await using agent = await frozenAgent(launched(["sh", "-c", `${below}; ${script}`]));
    process.kill(agent.pid, "SIGKILL");
    const { code, signal } = await agent.exited;
    assert.ok(code === 137 || signal === "SIGKILL", `${code} ${signal}`);
    assert.ok(existsSync(directory.at("orphaned")), "it has cleaned up");
    assert.deepEqual(sessionsOf(agent.pid), []);
  });

  it("after the agent is killed, the launcher thaws a workload in another cgroup", async () => {
    const move = `${FIND_CGROUP}; own=$mount/away-$$
mkdir "$own" && echo 0 > "$own/cgroup.procs"; trap 'sleep 0.5; rm "$1"; exit' TERM; echo > "$1"; echo up
while :; do sleep 0.05; done`;
    const file = directory.at("away");
    await using agent = await frozenAgent(launched(["sh", "-c", move, "sh", file]));
    const { pid } = await agent.logged("workload_started");
    process.kill(agent.pid, "SIGKILL");
    await agent.exited;
    assert.equal(existsSync(file), false, "it has cleaned up");
    await removeCgroups(`away-${String(pid)}`);
  });

  it("the agent thaws its session and stops when the launcher is killed", async () => {
    await using agent = await frozenAgent(launched(cleaningUp("unlaunched")));
    const { pid } = agent;
    process.kill(launcherOf(agent), "SIGKILL");
    await processGone(pid);
    assert.ok(existsSync(directory.at("unlaunched")), "it has cleaned up");
    assert.deepEqual(sessionsOf(pid), []);
  });

  it("the agent exits with the status of a workload killed while frozen", async () => {
    await using agent = await frozenAgent({ process: { args: cleaningUp("never") } });
    const { pid } = await agent.logged("workload_started");
    process.kill(Number(pid), "SIGKILL");
    assert.deepEqual(await agent.exited, { code: 137, signal: null });
  });

  it("the next agent thaws the session of a killed agent", async (t) => {
    const workload = new Ticking(directory.path, "abandoned");
    const args = ["sh", "-c", 'echo up; exec "$@"', "sh", ...workload.args];
    await using agent = await frozenAgent({ command: SOURCES_COMMAND, process: { args } });
    const { pid } = await agent.logged("workload_started");
    t.after(() => killIfThere(Number(pid)));
    process.kill(agent.pid, "SIGKILL");
    await processGone(agent.pid);
    const { rounds } = workload;
    assert.deepEqual(sessionsOf(agent.pid).length, 1);
    await using next = await startAgent();
    await workload.runs();
    assert.ok(workload.rounds > rounds);
    assert.deepEqual(sessionsOf(agent.pid).length, 1, "what lives in it keeps it");
    process.kill(Number(pid), "SIGKILL");
    await processGone(Number(pid));
    assert.equal((await next.stop()).code, 0);
    await using last = await startAgent();
    assert.deepEqual(sessionsOf(agent.pid), []);
    assert.equal((await last.stop()).code, 0);
  });
});

function sessionsOf(agent: number): string[] {
  return cgroupMounts()
    .map((mount) => join(mount, `svc-guest-${agent}-session`))
    .filter((path) => existsSync(path));
}
