import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { buildNative } from "../../../scripts/build-native.ts";
import { cgroupsOf } from "../../fixtures/footprint.ts";
import { AGENT_SCRIPT, type RunningAgent, SOURCES_COMMAND, startAgent } from "../../fixtures/agent.ts";
import { ExecStream, exec } from "../../fixtures/exec-stream.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { makeLauncherBundle } from "../../fixtures/bundles.ts";
import { lacksCgroups, NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { allProcesses, killIfThere, noProcessWith, processesWith } from "../../fixtures/proc.ts";
import { NEEDS_SETUID } from "../../fixtures/privileges.ts";
import { program } from "../../fixtures/programs/index.ts";

/** Name of the runaway program, different in other runs on this machine. The kernel keeps 15 characters. */
const RUNNER = `runs-${process.pid}`;
/** Lists what is left when the launcher has ended, before its own end kills the rest of an init's processes. */
const SHELL = [
  "sh",
  "-c",
  `"$@"; status=$?; echo "left: $(cat /proc/[0-9]*/comm 2>/dev/null | grep -c ${RUNNER})"; exit $status`,
  "sh",
];
const SETTINGS: Readonly<Record<string, readonly string[]>> = {
  "the child of a shell": SHELL,
  "the child of an init": ["unshare", "-pf", "--kill-child", "--mount-proc", ...SHELL],
};

/** A sleep time that identifies this run's processes. */
const DAEMON_SECONDS = `54${process.pid}.125`;
const ORPHAN = `orphan of ${process.pid}`;

/** What is left has a shorter grace than shipped, whose 10 s pass in launcher.test.ts. */
const bundle = forAllTests(makeLauncherBundle({ crashGraceMs: 1_000 }));
copyFileSync(buildNative(), join(bundle.directory, "agent.node"));
copyFileSync(program("fork_runner"), join(bundle.directory, RUNNER));

function startLaunched(through: readonly string[], workload: readonly string[]): Promise<RunningAgent> {
  return startAgent({ through, command: [bundle.launcher, AGENT_SCRIPT], process: { args: workload } });
}

/** The agent itself, below its launcher, as this process sees it. */
async function agentBelow(launched: RunningAgent): Promise<number> {
  const own = new Set<number>([launched.pid]);
  for (let size = 0; size < own.size;) {
    size = own.size;
    for (const { pid, parent } of allProcesses()) if (own.has(parent)) own.add(pid);
  }
  const agents = (await processesWith(join(bundle.directory, "agent.bin"))).filter((pid) => own.has(pid));
  assert.equal(agents.length, 1);
  return agents[0] ?? 0;
}

for (const [setting, through] of Object.entries(SETTINGS)) {
  describe(`an agent that is killed, its launcher being ${setting}`, () => {
    it(`a killed agent leaves nothing behind (${setting})`, NEEDS_NAMESPACES, async () => {
      // Everything is looked up before the storm, which leaves little CPU time for that.
      const go = join(bundle.directory, `go ${setting}`);
      const waiting = 'until [ -e "$1" ]; do sleep 0.05; done; exec "$2"';
      await using agent = await startLaunched(through, ["sh", "-c", waiting, "sh", go, join(bundle.directory, RUNNER)]);
      using daemon = new ExecStream(agent);
      await daemon
        .start({ args: ["sh", "-c", `(setsid sleep ${DAEMON_SECONDS} &) ; echo up; exec sleep 1000`] })
        .until("up");
      const { pid } = await agent.logged("agent_started");
      const target = await agentBelow(agent);
      writeFileSync(go, "");
      using stream = new ExecStream(agent);
      await stream.start({ args: [join(bundle.directory, RUNNER)] }).until("ready");
      await agent.printed(/ready/);
      process.kill(target, "SIGKILL");
      const { code, signal } = await agent.exited;
      assert.ok(code === 137 || signal === "SIGKILL", `${code} ${signal}`);
      assert.match(agent.output.stdout, /^left: 0$/m);
      assert.deepEqual(await processesWith(DAEMON_SECONDS), []);
      assert.deepEqual(cgroupsOf(pid), []);
    });
  });
}

describe("an agent that is killed, below a launcher without privileges", () => {
  it("an unprivileged launcher exits although another user's leftover process survives", NEEDS_SETUID, async (t) => {
    const setpriv = join(bundle.directory, "setuid-root-setpriv");
    copyFileSync(execFileSync("sh", ["-c", "command -v setpriv"], { encoding: "utf8" }).trim(), setpriv);
    chmodSync(setpriv, 0o4755);
    chmodSync(bundle.directory, 0o755);
    const drop = "exec setpriv --reuid=12345 --regid=12345 --clear-groups";
    await using agent = await startLaunched(
      ["sh", "-c", `chown -R 12345 "$(dirname "$SVC_TLS_CERT_FILE")"; ${drop} "$@"`, "sh"],
      [],
    );
    using stream = new ExecStream(agent);
    // Root by its real id too: a process with only the effective id may be killed by the user who started it.
    const daemon = `trap '' TERM HUP; (setsid sleep ${DAEMON_SECONDS} &); echo up; exec sleep ${DAEMON_SECONDS}`;
    await stream.start({ args: [setpriv, "--reuid=0", "sh", "-c", daemon] }).until("up");
    const roots = await processesWith(DAEMON_SECONDS);
    t.after(() => {
      for (const pid of roots) killIfThere(pid);
    });
    assert.ok(roots.every((pid) => /^Uid:\t0\t0\t/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))));
    process.kill(await agentBelow(agent), "SIGKILL");
    const { code, signal } = await agent.exited;
    assert.ok(code === 137 || signal === "SIGKILL", `${code} ${signal}`);
    assert.deepEqual(await processesWith(DAEMON_SECONDS), roots);
  });
});

describe("an agent that starts", () => {
  it("a new agent removes a killed agent's cgroups, but only empty ones", async (t) => {
    const killed = await startAgent({ command: SOURCES_COMMAND });
    const living = await startAgent();
    t.after(() => living[Symbol.asyncDispose]());
    if (lacksCgroups(t, killed)) {
      await killed[Symbol.asyncDispose]();
      return;
    }
    const { exit, stdout } = await exec(killed, { args: ["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"] });
    assert.equal(exit.code, 0);
    const survivor = Number(String(stdout));
    using orphan = new ExecStream(killed);
    await orphan.start({ args: ["sh", "-c", "echo up; read line", ORPHAN], stdin: true }).until("up");
    using inUse = new ExecStream(living);
    await inUse.start({ args: ["cat"], stdin: true }).next();
    // Before the kill: afterwards, every agent that starts, also one of another test file, removes the empty ones.
    assert.equal(cgroupsOf(killed.pid).length, 3, "one is kept ready");
    killed.kill("SIGKILL");
    await killed.exited;
    await noProcessWith(ORPHAN);
    await using next = await startAgent();
    const left = cgroupsOf(killed.pid);
    process.kill(survivor, "SIGKILL");
    assert.equal(left.length, 1, "that of the background process");
    assert.equal(cgroupsOf(living.pid).length, 2, "that of the command, and the one that is kept ready");
    await exec(next, { args: ["true"] });
    assert.equal((await inUse.end().outcome()).exit.code, 0);
    await killed[Symbol.asyncDispose]();
    await using last = await startAgent();
    assert.deepEqual(cgroupsOf(killed.pid), []);
    assert.equal((await exec(last, { args: ["true"] })).exit.code, 0);
  });
});
