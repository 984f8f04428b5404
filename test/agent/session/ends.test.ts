import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { type AgentOptions, type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import {
  delegatedCgroup,
  FIND_CGROUP,
  HELD_TO_MODES,
  lacksCgroups,
  NEEDS_NAMESPACES,
  noNamespaces,
  withoutCgroups,
} from "../../fixtures/namespaces.ts";
import { noProcessWith, processesWith } from "../../fixtures/proc.ts";
import { exec, ExecStream, execUntilTimeout } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

/** Enough for a shell to start under any load; the measurement begins after that. */
const TIMEOUT_MS = 3_000;
const HOUR_MS = 3_600_000;

/** A server whose clean-up takes 300 ms, under a shell that dies of the same signal at once. */
const SERVER = "trap 'sleep 0.3; echo cleaned up; exit' TERM HUP; echo up; while :; do sleep 0.05; done";
const TREE = ["sh", "-c", 'sh -c "$1"; true', "sh", SERVER];

const directory = forAllTests(await testDirectory()).path;

/** A sleep time that only one test of this run uses: it identifies its processes. */
function mark(fraction: number): string {
  return `44${process.pid}.${fraction}`;
}

/** Content of a file; empty while there is none. */
function textOf(path: string): string {
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

function started(t: TestContext, through: readonly string[], options: AgentOptions = {}): Promise<RunningAgent> {
  const missing = through.length > 0 ? noNamespaces() : undefined;
  if (missing !== undefined) t.skip(missing);
  return startAgent({ ...options, through: missing === undefined ? through : [] });
}

const WAYS: Readonly<Record<string, () => readonly string[]>> = {
  "with cgroups": () => [],
  "without cgroups": withoutCgroups,
};

for (const [way, through] of Object.entries(WAYS)) {
  describe(`the grace period of the whole tree ${way}`, () => {
    it(`a timed-out exec's whole tree gets its grace period ${way}`, async (t) => {
      await using agent = await started(t, through());
      const { exit, stdout } = await execUntilTimeout(agent, TREE);
      assert.deepEqual([exit.timedOut, exit.signal, String(stdout)], [true, 15, "up\ncleaned up\n"]);
    });

    it(`a stopping agent gives an exec's whole tree its grace period ${way}`, async (t) => {
      await using agent = await started(t, through());
      using stream = new ExecStream(agent);
      await stream.start({ args: TREE }).until("up\n");
      agent.kill("SIGTERM");
      const { exit, stdout } = await stream.outcome();
      assert.deepEqual([exit.timedOut, exit.signal, String(stdout)], [false, 15, "cleaned up\n"]);
      assert.equal((await agent.exited).code, 0);
    });

    it(`a timed-out hook's whole tree gets its grace period ${way}`, async (t) => {
      await using agent = await started(t, through(), { hooks: { preSnapshot: { args: TREE } } });
      using client = clientOf(agent);
      const outcome = await client.snapshots.prepare({ timeoutMs: TIMEOUT_MS });
      assert.deepEqual([outcome.timedOut, outcome.exitCode, outcome.stdoutTail], [true, 143, "up\ncleaned up\n"]);
    });

    it(`a timed-out ready_cmd's whole tree gets its grace period ${way}`, async (t) => {
      const output = join(directory, `ready ${way}`);
      const args = ["sh", "-c", 'exec >"$2"; sh -c "$1"; true', "sh", SERVER, output];
      const ready = { args, timeout_ms: TIMEOUT_MS, interval_ms: HOUR_MS };
      await using agent = await started(t, through(), { process: { ready_cmd: ready } });
      await agent.logged("readiness_changed");
      using client = clientOf(agent);
      assert.equal((await client.health()).readyCmdExit, 124);
      assert.equal(readFileSync(output, "utf8"), "up\ncleaned up\n");
    });

    it(`a stopped workload's whole tree gets its grace period ${way}`, async (t) => {
      await using agent = await started(t, through(), { process: { args: TREE } });
      await agent.printed(/up\n/);
      assert.deepEqual(await agent.stop(), { code: 143, signal: null });
      assert.equal(agent.output.stdout, "up\ncleaned up\n");
    });

    it(`an exited workload's remaining processes get their grace period ${way}`, async (t) => {
      const args = ["sh", "-c", '(sh -c "$1") & read line <&3; exit 7', "sh", SERVER];
      const fifo = `rm -f "$0" && mkfifo "$0" && exec 3<>"$0" && exec "$@"`;
      const ended = ["sh", "-c", fifo, join(directory, `fifo ${way}`), ...args];
      await using agent = await started(t, through(), { process: { args: ended } });
      await agent.printed(/up\n/);
      await exec(agent, { args: ["sh", "-c", 'echo go > "$0"', join(directory, `fifo ${way}`)] });
      assert.deepEqual(await agent.exited, { code: 7, signal: null });
      assert.equal(agent.output.stdout, "up\ncleaned up\n");
    });
  });

  describe(`a hook at its timeout ${way}`, () => {
    it(`a timed-out hook reports exactly the processes that outlive it ${way}`, async (t) => {
      const [told, untold] = [mark(625), mark(750)];
      const daemons = `(setsid sh -c '(sleep ${told} &)' &); (setsid sh -c '(sleep ${untold} >/dev/null 2>&1 &)' &)`;
      const hook = { args: ["sh", "-c", `${daemons}; exec sleep 1000`] };
      await using agent = await started(t, through(), { hooks: { preSnapshot: hook } });
      const hasCgroups = !agent.log.some(({ event }) => event === "cgroups_unavailable");
      using client = clientOf(agent);
      assert.equal((await client.snapshots.prepare({ timeoutMs: TIMEOUT_MS })).timedOut, true);
      const left = [...(await processesWith(`sleep\0${told}`)), ...(await processesWith(`sleep\0${untold}`))];
      for (const pid of left) process.kill(pid, "SIGKILL");
      await agent.logged("hook_ended");
      const lines = agent.log.filter(({ event }) => event === "hook_processes_left");
      assert.equal(left.length, hasCgroups ? 0 : 2);
      assert.deepEqual(
        lines.map(({ pids }) => pids),
        left.slice(0, 1).map(String),
      );
    });
  });

  describe(`an exec whose client disconnected ${way}`, () => {
    for (const [kind, terminal] of [
      ["on pipes", undefined],
      ["in a terminal", { cols: 80, rows: 24, term: "xterm" }],
    ] as const) {
      it(`cancelling an exec ends its background jobs ${kind} ${way}`, async (t) => {
        await using agent = await started(t, through());
        using stream = new ExecStream(agent);
        const seconds = mark(kind === "on pipes" ? 125 : 250);
        const args = [
          "bash",
          "-c",
          `set -m; sleep ${seconds} & (sleep ${seconds} &) ; echo up; wait; sleep ${seconds}`,
        ];
        await stream.start({ args, ...(terminal && { terminal }) }).until("up");
        stream.cancel();
        await noProcessWith(seconds);
      });
    }

    it(`a cancelled exec gives its session's processes a grace period ${way}`, async (t) => {
      await using agent = await started(t, through());
      using stream = new ExecStream(agent);
      const output = join(directory, `hung up ${way}`);
      const args = ["bash", "-c", 'set -m; sh -c "$1" >"$2" 2>&1 & echo up; exec sleep 1000', "bash", SERVER, output];
      await stream.start({ args }).until("up");
      await until(() => textOf(output) !== "", "the job in the background is up");
      stream.cancel();
      await until(() => textOf(output).includes("cleaned up\n"), "the job has cleaned up");
    });

    it(`cancelling an exec kills only session members that ignore SIGHUP ${way}`, async (t) => {
      await using agent = await started(t, through());
      using stream = new ExecStream(agent);
      const [stays, goes] = [mark(375), mark(500)];
      const line = `trap '' HUP; (setsid sh -c 'echo daemon; exec sleep ${stays}' &); set -m; sleep ${goes} & wait`;
      await stream.start({ args: ["bash", "-c", line] }).until("daemon");
      await until(async () => (await processesWith(`sleep\0${goes}`)).length > 0, "the job runs");
      stream.cancel();
      await noProcessWith(goes);
      const daemons = await processesWith(`sleep\0${stays}`);
      for (const pid of daemons) process.kill(pid, "SIGKILL");
      assert.equal(daemons.length, 1);
    });
  });
}

const CLEAN_UP = "trap 'sleep 0.3; echo cleaned up; exit' TERM; echo up; while :; do sleep 0.05; done";
const MARK = `hostile-${process.pid}`;
/** Finds the cgroups, or says that there are none. */
const FIND_OR_SAY = `${FIND_CGROUP}; case $own in */svc-guest-*) ;; *) echo no cgroup; exit 9;; esac`;

/** What a root command may do to its cgroup, in shell; `$1` is the clean-up that must run. */
const DEEDS: Readonly<Record<string, string>> = {
  threaded: 'mkdir "$own/inner"; echo threaded > "$own/inner/cgroup.type"; echo 0 > "$own/inner/cgroup.threads"',
  frozen: 'sh -c "$1" & sleep 0.3; echo 1 > "$own/cgroup.freeze"',
  nested: 'mkdir "$own/inner" && (echo 0 > "$own/inner/cgroup.procs"; exec setsid sh -c "$1") &',
  "left by moving away": 'echo 0 > "$base/cgroup.procs"',
  removed: 'echo 0 > "$base/cgroup.procs"; rmdir "$own"',
  unreadable: 'chmod 000 "$own"/cgroup.*',
  "joined by the agent": 'echo "$2" > "$own/cgroup.procs"',
};
describe("a command that times out, its cgroup being", () => {
  for (const [deed, line] of Object.entries(DEEDS)) {
    it(`a timed-out command ends although its cgroup is ${deed}`, NEEDS_NAMESPACES, async (t) => {
      using base = deed === "unreadable" ? delegatedCgroup(MARK) : undefined;
      const through = base === undefined ? [] : [...base.enter, ...HELD_TO_MODES];
      await using agent = await startAgent({ through, process: { args: ["sleep", "1000"] } });
      if (lacksCgroups(t, agent)) return;
      const seconds = `45${process.pid}.${Object.keys(DEEDS).indexOf(deed)}25`;
      const runs = deed === "frozen" || deed === "nested" ? "wait" : 'sh -c "$1"';
      const script = `${FIND_OR_SAY}\n${line}\nsetsid sleep ${seconds} & ${runs}; true`;
      const { exit, stdout, stderr } = await exec(agent, {
        args: ["sh", "-c", script, "sh", CLEAN_UP, String(agent.pid)],
        timeoutMs: BigInt(TIMEOUT_MS),
      });
      if (exit.code === 9) {
        t.skip(`needs to see the cgroup: ${String(stdout)}`);
        return;
      }
      // Shells report children that were terminated.
      assert.deepEqual(
        [String(stderr).replaceAll("Terminated\n", ""), exit.timedOut, String(stdout)],
        ["", true, "up\ncleaned up\n"],
      );
      await noProcessWith(seconds);
      const back = `${FIND_CGROUP}\necho "$1" > "$base/cgroup.procs"`;
      const after = await exec(agent, { args: ["sh", "-c", back, "sh", String(agent.pid)] });
      assert.equal(after.exit.code, 0, String(after.stderr));
      assert.ok(!agent.log.some(({ event }) => event === "workload_ended"));
    });
  }
});
