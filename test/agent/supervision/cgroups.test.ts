import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { describe, it } from "node:test";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { cgroupsOf } from "../../fixtures/footprint.ts";
import { exec, ExecStream, execUntilTimeout } from "../../fixtures/exec-stream.ts";
import {
  FIND_CGROUP,
  inMountNamespace,
  UNMOUNT_CGROUPS,
  withoutCgroups,
  lacksCgroups,
  NEEDS_NAMESPACES,
} from "../../fixtures/namespaces.ts";
import { noProcessWith, processesWith, processGone } from "../../fixtures/proc.ts";
import { program } from "../../fixtures/programs/index.ts";

/** A sleep time that only this run uses: it identifies its processes. */
function mark(fraction: number): string {
  return `43${process.pid}.${fraction}`;
}

/**
 * A command that starts a daemon. The daemon leaves the session and has no living parent: /proc has no link from it to
 * the command. It says `up` itself.
 */
function daemon(sleepSeconds: string): string[] {
  return ["sh", "-c", `(setsid sh -c '(echo up; exec sleep ${sleepSeconds}) &' &); exec sleep 1000`];
}

async function killsTheDaemon(agent: RunningAgent, sleepSeconds: string): Promise<void> {
  assert.equal((await execUntilTimeout(agent, daemon(sleepSeconds))).exit.timedOut, true);
  assert.deepEqual(await processesWith(sleepSeconds), []);
}

describe("a command in a cgroup of its own", () => {
  it("a command's timeout kills its setsid daemons through the command's cgroup", async (t) => {
    await using agent = await startAgent();
    if (lacksCgroups(t, agent)) return;
    await killsTheDaemon(agent, mark(125));
  });

  it("without a mounted cgroup2 file system, the agent mounts one for itself", NEEDS_NAMESPACES, async (t) => {
    await using agent = await startAgent({ through: inMountNamespace(UNMOUNT_CGROUPS) });
    if (lacksCgroups(t, agent)) return;
    await killsTheDaemon(agent, mark(250));
    const { stdout } = await exec(agent, { args: ["cat", "/proc/self/cgroup", "/proc/mounts"] });
    assert.match(String(stdout), new RegExp(`^0::.*/svc-guest-${agent.pid}-\\d+$`, "m"));
    assert.doesNotMatch(String(stdout), /^\S+ \S+ cgroup2 /m);
  });

  it("a background process outlives its command, and its cgroup is removed when it ends", async (t) => {
    await using agent = await startAgent();
    if (lacksCgroups(t, agent)) return;
    const { exit, stdout } = await exec(agent, { args: ["sh", "-c", `sleep ${mark(375)} >/dev/null 2>&1 & echo $!`] });
    assert.equal(exit.code, 0);
    const pid = Number(String(stdout));
    assert.equal(cgroupsOf(agent.pid).length, 2, "that of the background process, and the one that is kept ready");
    process.kill(pid, "SIGKILL");
    await processGone(pid);
    // The first one returns the empty cgroup.
    await exec(agent, { args: ["true"] });
    await until(() => cgroupsOf(agent.pid).length === 1, "only the cgroup that is kept ready is left");
  });

  it("each command gets a new cgroup of its own", async (t) => {
    await using agent = await startAgent();
    if (lacksCgroups(t, agent)) return;
    const own = async (): Promise<string> => String((await exec(agent, { args: ["cat", "/proc/self/cgroup"] })).stdout);
    assert.equal(new Set([await own(), await own(), await own()]).size, 3);
  });

  it("a timeout kills a fork loop completely", async () => {
    await using agent = await startAgent();
    const { exit } = await exec(agent, { args: [program("fork_loop")], timeoutMs: 1_500n });
    assert.equal(exit.timedOut, true);
    // Every process of the loop has the pipe. A listing of processes could miss a loop whose ids change all the time.
    assert.equal(exit.outputComplete, true);
  });
});

describe("an agent that may have no cgroups", () => {
  it("without cgroups, a timed-out command's processes are found in /proc and killed", NEEDS_NAMESPACES, async () => {
    await using agent = await startAgent({ through: withoutCgroups() });
    assert.ok(agent.log.some(({ event }) => event === "cgroups_unavailable"));
    const line = `setsid sleep ${mark(625)} & trap '' TERM; echo up; while :; do sleep 0.05; done`;
    assert.equal((await exec(agent, { args: ["sh", "-c", line], timeoutMs: 2_000n })).exit.timedOut, true);
    assert.deepEqual(await processesWith(mark(625)), []);
    assert.doesNotMatch(String((await exec(agent, { args: ["cat", "/proc/self/cgroup"] })).stdout), /svc-guest-/);
  });
});

describe("an agent that ends", () => {
  it("a stopping agent kills daemons of running commands and removes their cgroups", async (t) => {
    const agent = await startAgent();
    using stream = new ExecStream(agent);
    stream.start({ args: daemon(mark(750)) });
    await stream.until("up\n");
    await agent[Symbol.asyncDispose]();
    if (lacksCgroups(t, agent)) return;
    await noProcessWith(mark(750));
    // Goes on where a directory of another agent is removed meanwhile.
    const left = spawnSync("find", ["/sys/fs/cgroup", "-name", `svc-guest-${agent.pid}-*`], { encoding: "utf8" });
    assert.equal(left.stdout, "");
  });

  it("a stopping agent removes cgroups that commands created inside their own cgroups", async (t) => {
    const agent = await startAgent();
    await using _ = agent;
    if (lacksCgroups(t, agent)) return;
    const make = `${FIND_CGROUP}\nmkdir -p "$own/of.command/inner"; echo "$own"`;
    const { stdout } = await exec(agent, { args: ["sh", "-c", make] });
    const made = `${String(stdout).trim()}/of.command/inner`;
    assert.ok(existsSync(made));
    await agent.stop();
    assert.ok(!existsSync(made));
  });
});
