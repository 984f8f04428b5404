import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chmodSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { type GuestClient, GuestError, restoreDuties } from "../../../src/node/client/index.ts";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import {
  delegatedCgroup,
  FIND_CGROUP,
  HELD_TO_MODES,
  NEEDS_NAMESPACES,
  needsCgroups,
  removeCgroups,
  withoutCgroups,
} from "../../fixtures/namespaces.ts";
import { fuseMount, program } from "../../fixtures/programs/index.ts";
import { ExecStream, exec, failingExec } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { endExec, keep } from "../../fixtures/kept-commands.ts";
import { echo, listener } from "../../fixtures/listeners.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";
import { allProcesses } from "../../fixtures/proc.ts";
import { Ticking } from "../../fixtures/ticking.ts";

const ENTROPY = new Uint8Array(64).fill(7);
/** Longer than any test: a thaw before that has another reason. */
const LONG_MS = 600_000;

const NEEDS_CGROUPS = await needsCgroups();
const directory = forAllTests(await testDirectory());

let names = 0;
function ticking(): Ticking {
  return new Ticking(directory.path, `ticks-${++names}`);
}

async function freeze(client: GuestClient): Promise<readonly [frozen: boolean, problem: string]> {
  const { frozen, freezeProblem } = await client.snapshots.prepare({ freezeMs: LONG_MS });
  return [frozen, freezeProblem];
}

/** Runs the duties over a connection of their own, for they end all that are older; tells whether it is still frozen. */
async function runDuties(agent: RunningAgent): Promise<boolean> {
  using client = clientOf(agent);
  return (await client.snapshots.duties({ entropy: ENTROPY })).frozen;
}

describe("a frozen session", NEEDS_CGROUPS, () => {
  it("a frozen session runs no instruction until restore steps thaw it", async () => {
    const workload = ticking();
    await using agent = await startAgent({ process: { args: workload.args } });
    const command = ticking();
    using stream = new ExecStream(agent);
    stream.start({ args: command.args });
    await Promise.all([workload.runs(), command.runs()]);
    using client = clientOf(agent);
    const { ran, frozen, frozenProcesses, freezePending, freezeProblem } = await client.snapshots.prepare({
      freezeMs: LONG_MS,
    });
    assert.deepEqual([ran, frozen, freezePending, freezeProblem], [false, true, undefined, ""]);
    assert.equal(frozenProcesses, 2);
    assert.equal((await client.health()).frozen, true);
    await Promise.all([workload.standsStill(client), command.standsStill(client)]);
    assert.equal(await runDuties(agent), false);
    using later = clientOf(agent);
    const health = await later.health();
    assert.deepEqual([health.frozen, health.thawedWithoutDuties], [false, false]);
    await workload.runs();
  });

  it("a PRE_SNAPSHOT hook that fails or times out does not prevent freezing", async () => {
    for (const args of [["true"], ["false"], ["sleep", "1000"]]) {
      const workload = ticking();
      await using agent = await startAgent({ process: { args: workload.args }, hooks: { preSnapshot: { args } } });
      await workload.runs();
      using client = clientOf(agent);
      const outcome = await client.snapshots.prepare({ timeoutMs: 1_000, freezeMs: LONG_MS });
      assert.deepEqual([outcome.ran, outcome.frozen, outcome.timedOut], [true, true, args[0] === "sleep"]);
      await workload.standsStill(client);
    }
  });

  it("a frozen session permits Health, files and ports, but no commands", async () => {
    await using agent = await startAgent({ hooks: { preSnapshot: { args: ["true"] } } });
    await using server = await listener(echo);
    using client = clientOf(agent);
    await client.snapshots.prepare({ freezeMs: LONG_MS });
    const activity = (await client.health()).lastUserActivity;
    const refused = await failingExec(agent, { args: ["true"] });
    assert.deepEqual([refused.code, refused.reason], [status.FAILED_PRECONDITION, "SESSION_FROZEN"]);
    assert.ok(Number(refused.metadata["leftMs"]) > LONG_MS / 2);
    assert.deepEqual(
      (await client.health()).lastUserActivity,
      activity,
      "a refused command does not count as activity",
    );
    assert.equal((await failureOf(client.snapshots.prepare())).reason, "SESSION_FROZEN");
    assert.equal((await client.snapshots.hook("post-restore")).ran, false);
    const tunnel = client.ports.connect(server.port).on("error", () => {});
    const { status: code, reason } = await failureOf(tunnel.opened);
    assert.deepEqual([code, reason], ["FAILED_PRECONDITION", "SESSION_FROZEN"]);
    await client.ports.waitFor(server.port);
    await client.files.writeFile(directory.at("while-frozen"), "text");
    assert.equal(String(await client.files.readFile(directory.at("while-frozen"))), "text");
    assert.deepEqual(await client.commands.list(), []);
  });

  it("a second node cannot freeze a frozen session but can thaw it", async () => {
    const workload = ticking();
    await using agent = await startAgent({ process: { args: workload.args } });
    using one = clientOf(agent);
    using other = clientOf(agent);
    const outcomes = await Promise.allSettled([freeze(one), freeze(other)]);
    assert.deepEqual(outcomes.map((outcome) => outcome.status).toSorted(), ["fulfilled", "rejected"]);
    const refused = outcomes.find((outcome) => outcome.status === "rejected");
    assert.ok(refused?.reason instanceof GuestError, String(refused?.reason));
    assert.equal(refused.reason.reason, "SESSION_FROZEN");
    // A node that lost the answer runs the duties and begins again, and once more if it lost their answer.
    for (let time = 0; time < 3; time++) assert.equal(await runDuties(agent), false);
    await workload.runs();
    using again = clientOf(agent);
    assert.deepEqual(await freeze(again), [true, ""]);
    await workload.standsStill(again);
  });

  it("refused restore steps leave the session frozen; partly successful ones thaw it", async () => {
    const workload = ticking();
    await using agent = await startAgent({ process: { args: workload.args } });
    using client = clientOf(agent);
    await client.snapshots.prepare({ freezeMs: LONG_MS });
    assert.equal((await failureOf(client.snapshots.duties({ entropy: new Uint8Array() }))).reason, "INVALID_FIELD");
    assert.equal((await client.health()).frozen, true);
    const { degraded, frozen } = await client.snapshots.duties({ entropy: ENTROPY.subarray(0, 8) });
    assert.match(degraded, /entropy_short/);
    assert.equal(frozen, false);
    await workload.runs();
  });

  it("no freeze happens if the caller disconnects before the PRE_SNAPSHOT hook ends", async () => {
    const workload = ticking();
    const hook = `touch '${directory.at("hook-began")}'; sleep 1000`;
    await using agent = await startAgent({
      process: { args: workload.args },
      hooks: { preSnapshot: { args: ["sh", "-c", hook] }, postRestore: { args: ["true"] } },
    });
    using client = clientOf(agent);
    const abort = new AbortController();
    const call = client.snapshots.prepare({ freezeMs: LONG_MS, signal: abort.signal });
    await until(() => existsSync(directory.at("hook-began")), "the hook has begun");
    abort.abort();
    await assert.rejects(call);
    // POST_RESTORE waits for its turn.
    assert.equal((await client.snapshots.hook("post-restore")).ran, true);
    await workload.runs();
    assert.equal((await client.health()).frozen, false);
    assert.equal((await exec(agent, { args: ["true"] })).exit.code, 0);
  });
});

describe("a session that the kernel refuses", NEEDS_CGROUPS, () => {
  it("if the kernel refuses a freeze, the response names the errno", async () => {
    const workload = ticking();
    using base = delegatedCgroup(`unfrozen-${process.pid}`);
    const through = [...base.enter, ...HELD_TO_MODES];
    await using agent = await startAgent({ through, process: { args: workload.args } });
    const file = freezeFileIn(base.path);
    chmodSync(file, 0);
    using client = clientOf(agent);
    assert.deepEqual(await freeze(client), [false, "freeze_write:EACCES"]);
    await workload.runs();
    assert.equal((await exec(agent, { args: ["true"] })).exit.code, 0);
    chmodSync(file, 0o644);
    assert.deepEqual(await freeze(client), [true, ""]);
    await workload.standsStill(client);
  });

  it("a thaw that the kernel refuses is logged, and restoreDuties retries until it succeeds", async () => {
    const workload = ticking();
    using base = delegatedCgroup(`refused-${process.pid}`);
    const through = [...base.enter, ...HELD_TO_MODES];
    const ready = { args: ["true"], intervalMs: 600_000 };
    await using agent = await startAgent({ through, process: { args: workload.args, readyCmd: ready } });
    using client = clientOf(agent);
    await until(async () => (await client.health()).ready, "ready_cmd has given its verdict");
    assert.deepEqual(await freeze(client), [true, ""]);
    const file = freezeFileIn(base.path);
    chmodSync(file, 0);
    const duties = restoreDuties(() => clientOf(agent), { reachTimeoutMs: LONG_MS });
    assert.equal((await agent.logged("session_thaw_failed"))["why"], "duties");
    await agent.logged("restore_duties_done");
    using meanwhile = clientOf(agent);
    const { frozen, ready: isReady } = await meanwhile.health();
    assert.deepEqual([frozen, isReady], [true, true], "no verdict about a session that stands still");
    chmodSync(file, 0o644);
    assert.equal((await duties).frozen, false);
    await workload.runs();
    await agent.logged("restore_duties_done", (line) => line["frozen"] === false);
    const done = agent.log.filter(({ event }) => event === "restore_duties_done").map((line) => line["frozen"]);
    assert.deepEqual([done[0], done.at(-1)], [true, false]);
  });
});

describe("timers of a frozen session", NEEDS_CGROUPS, () => {
  it("a command's timeout pauses while the session is frozen", async () => {
    await using agent = await startAgent();
    using client = clientOf(agent);
    using stream = new ExecStream(agent);
    const began = performance.now();
    await stream.start({ args: ["sh", "-c", "echo up; exec sleep 1000"], timeoutMs: 10_000n }).until("up");
    assert.equal((await client.snapshots.prepare({ freezeMs: 6_000 })).frozen, true);
    const { exit } = await stream.outcome();
    assert.equal(exit.timedOut, true);
    assert.ok(performance.now() - began >= 16_000, "the frozen time does not count");
    assert.ok(
      exit.durationMs >= 10_000n && exit.durationMs < performance.now() - began - 5_000,
      String(exit.durationMs),
    );
  });

  it("in a frozen session, EndExec waits for the thaw, but SIGKILL acts immediately", async () => {
    await using agent = await startAgent();
    using client = clientOf(agent);
    const cleanUp = "trap 'sleep 0.5; echo cleaned up; exit 7' TERM; echo up; while :; do sleep 0.05; done";
    using polite = await keep(agent, { args: ["sh", "-c", cleanUp], keep: { name: "polite" } });
    await polite.stream.until("up");
    using killed = await keep(agent, { args: ["sleep", "1000"], keep: { name: "killed" } });
    assert.deepEqual(await freeze(client), [true, ""]);
    const ended = endExec(agent, { name: "polite", graceMs: 5_000n });
    // The duties end its connection.
    ended.catch(() => {});
    const { exit } = await endExec(agent, { name: "killed", signal: 9 });
    assert.equal(exit?.signal, 9);
    assert.equal((await killed.stream.outcome()).exit.signal, 9);
    assert.equal((await client.commands.list()).find(({ name }) => name === "polite")?.exit, undefined);
    await runDuties(agent);
    using again = clientOf(agent);
    const result = await again.commands.attach("polite").wait();
    assert.deepEqual([result.exitCode, result.signal], [7, undefined]);
  });

  it("a command cancelled while frozen gets SIGHUP and its grace period after the thaw", async () => {
    await using agent = await startAgent();
    const marks = ["cancelled", "gone"].map((name) => directory.at(`hung-up-${name}`));
    using client = clientOf(agent);
    const streams: ExecStream[] = [];
    for (const mark of marks) {
      const trap = `trap 'sleep 0.5; touch "${mark}"; exit' HUP; echo up; while :; do sleep 0.05; done`;
      const stream = new ExecStream(agent);
      streams.push(stream);
      await stream.start({ args: ["sh", "-c", trap] }).until("up");
    }
    const [cancelled, gone] = streams;
    assert.deepEqual(await freeze(client), [true, ""]);
    cancelled?.cancel();
    gone?.[Symbol.dispose]();
    for (let call = 0; call < 20; call++) await client.health();
    assert.ok(!marks.some((mark) => existsSync(mark)));
    await runDuties(agent);
    await until(() => marks.every((mark) => existsSync(mark)), "both have cleaned up");
    cancelled?.[Symbol.dispose]();
  });

  it("output in a frozen command's pipes is still delivered", async () => {
    await using agent = await startAgent();
    using client = clientOf(agent);
    const writes = (file: string): string[] => ["sh", "-c", `yes | head -c 32768; touch '${file}'; sleep 1000`];
    const [plain, kept] = [directory.at("written"), directory.at("written-kept")];
    using stream = new ExecStream(agent);
    stream.start({ args: writes(plain) });
    using keeping = await keep(agent, { args: writes(kept), keep: { name: "writes" } });
    await until(() => existsSync(plain) && existsSync(kept), "both have written");
    assert.deepEqual(await freeze(client), [true, ""]);
    for (const each of [stream, keeping.stream]) await each.until("y\n".repeat(16_384));
  });

  it("DeclareIdle takes effect although the workload was frozen after sending it", async () => {
    const [go, sent, answered] = ["go", "sent", "answered"].map((name) => directory.at(`idle-${name}`));
    const head = "POST /svc.guest.v1alpha1.WorkloadService/DeclareIdle HTTP/1.1";
    const fields = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2";
    const script = `const fs = require("node:fs");
const look = setInterval(() => {
  if (!fs.existsSync(${JSON.stringify(go)})) return;
  clearInterval(look);
  const socket = require("node:net").connect(process.env.SVC_WORKLOAD_SOCKET);
  socket.write(${JSON.stringify(`${head}\r\n${fields}\r\n\r\n{}`)}, () => fs.writeFileSync(${JSON.stringify(sent)}, ""));
  socket.on("data", () => fs.writeFileSync(${JSON.stringify(answered)}, ""));
}, 20);
setInterval(() => {}, 1000);`;
    await using agent = await startAgent({ process: { args: [process.execPath, "-e", script] } });
    using client = clientOf(agent);
    assert.equal((await client.health()).idleDeclared, undefined);
    agent.kill("SIGSTOP");
    try {
      writeFileSync(go ?? "", "");
      await until(() => existsSync(sent ?? ""), "it has sent its declaration");
    } finally {
      agent.kill("SIGCONT");
    }
    assert.deepEqual(await freeze(client), [true, ""]);
    await until(async () => (await client.health()).idleDeclared !== undefined, "the declaration counts");
    assert.equal((await client.health()).frozen, true);
    await runDuties(agent);
    await until(() => existsSync(answered ?? ""), "it has its answer");
  });
});

describe("sessions that are hard to freeze", NEEDS_CGROUPS, () => {
  it("the restore steps do not thaw a cgroup that a command froze", async () => {
    await using agent = await startAgent();
    using client = clientOf(agent);
    const nested = `${FIND_CGROUP}\nmkdir "$own/inner"; sleep 1000 & echo $! > "$own/inner/cgroup.procs"
echo 1 > "$own/inner/cgroup.freeze"; echo "in $own/inner"; wait`;
    using stream = new ExecStream(agent);
    const seen = await stream.start({ args: ["sh", "-c", nested] }).until("/inner\n");
    const inner = /in (\S+)/.exec(seen)?.[1] ?? "";
    const { frozen, frozenProcesses } = await client.snapshots.prepare({ freezeMs: LONG_MS });
    assert.deepEqual([frozen, frozenProcesses], [true, 2]);
    await runDuties(agent);
    assert.equal(readFileSync(`${inner}/cgroup.freeze`, "utf8"), "1\n");
  });

  it("a process that moved to a new cgroup is frozen and thawed there", async (t) => {
    const mover = ticking();
    const move = `${FIND_CGROUP}\nmkdir "$mount/moved-$$" && echo 0 > "$mount/moved-$$/cgroup.procs"; exec "$@"`;
    const args = ["sh", "-c", move, "sh", program("leaderless"), mover.file];
    await using agent = await startAgent({ process: { args } });
    using client = clientOf(agent);
    const { pid } = await agent.logged("workload_started");
    t.after(() => removeCgroups(`moved-${String(pid)}`));
    await mover.runs();
    const outcome = await client.snapshots.prepare({ freezeMs: LONG_MS });
    assert.deepEqual([outcome.frozen, outcome.frozenProcesses, outcome.freezeProblem], [true, 1, ""]);
    await mover.standsStill(client);
    await runDuties(agent);
    await mover.runs();
  });

  it("a fork loop in its own cgroup can be frozen and thawed 20 times", async (t) => {
    const file = directory.at("forks");
    const loop = `${FIND_CGROUP}\nmkdir "$mount/forks-$$" && echo 0 > "$mount/forks-$$/cgroup.procs"
while :; do (:) & (echo >> '${file}'); done`;
    await using agent = await startAgent({ process: { args: ["sh", "-c", loop] } });
    const { pid } = await agent.logged("workload_started");
    t.after(async () => {
      await agent[Symbol.asyncDispose]();
      await removeCgroups(`forks-${String(pid)}`);
    });
    const rounds = (): number => (existsSync(file) ? readFileSync(file).length : 0);
    for (let time = 0; time < 20; time++) {
      const made = rounds();
      await until(() => rounds() > made, "it has made another round");
      using client = clientOf(agent);
      assert.deepEqual(await freeze(client), [true, ""], `time ${time}`);
      assert.equal((await client.snapshots.duties({ entropy: ENTROPY })).frozen, false);
    }
  });

  it("short-lived processes of other sessions do not prevent a freeze", async () => {
    const workload = ticking();
    await using agent = await startAgent({ process: { args: workload.args } });
    // Each in a session of its own, as those of other agents are: nobody alive tells whose they were.
    const loops = [1, 2].map(() => spawn("sh", ["-c", "while :; do setsid true; setsid sh -c '(:) & :' & done"]));
    try {
      for (let time = 0; time < 20; time++) {
        await workload.runs();
        using client = clientOf(agent);
        assert.deepEqual(await freeze(client), [true, ""], `time ${time}`);
        assert.equal((await client.snapshots.duties({ entropy: ENTROPY })).frozen, false);
      }
    } finally {
      for (const loop of loops) loop.kill("SIGKILL");
    }
  });

  it("a freeze fails and names a process that left the session's cgroup", async () => {
    const mover = ticking();
    const workload = ticking();
    await using agent = await startAgent({ process: { args: workload.args } });
    using client = clientOf(agent);
    using stream = new ExecStream(agent);
    const move = `${FIND_CGROUP}\necho 0 > "$base/cgroup.procs"; exec "$@"`;
    const pid = await started(stream.start({ args: ["sh", "-c", move, "sh", ...mover.args] }));
    await mover.runs();
    assert.deepEqual(await freeze(client), [false, `processes_outside:${pid}(sh)`]);
    await Promise.all([mover.runs(), workload.runs()]);
    assert.equal((await client.health()).frozen, false);
    assert.equal((await exec(agent, { args: ["true"] })).exit.code, 0);
  });

  it("a freeze fails while the agent is inside the session's cgroup", async () => {
    await using agent = await startAgent();
    using client = clientOf(agent);
    using stream = new ExecStream(agent);
    const join = `${FIND_CGROUP}\necho "$1" > "$own/cgroup.procs"; echo joined; read line; echo "$1" > "$base/cgroup.procs"`;
    await stream.start({ args: ["sh", "-c", join, "sh", String(agent.pid)], stdin: true }).until("joined");
    const { frozen, freezeProblem } = await client.snapshots.prepare({ freezeMs: LONG_MS });
    assert.equal(frozen, false);
    assert.ok(freezeProblem.startsWith(`foreign_inside:${agent.pid}(`), freezeProblem);
    await stream.stdin("\n").end().outcome();
    assert.deepEqual(await freeze(client), [true, ""]);
  });

  it("a freeze counts ten processes blocked in the kernel and names eight", NEEDS_FUSE, async () => {
    await using mounted = await testDirectory();
    await using mount = await fuseMount("hanging_mount", mounted.at("hung"), ["take"]);
    let said = "";
    mount.server.stdout.on("data", (bytes: Buffer) => (said += bytes.toString()));
    await using agent = await startAgent();
    using client = clientOf(agent);
    using streams = new DisposableStack();
    const pids: number[] = [];
    for (let number = 1; number <= 10; number++) {
      const stream = streams.use(new ExecStream(agent));
      pids.push(await started(stream.start({ args: ["cat", mounted.at(`hung/file-${number}`)] })));
    }
    await until(() => said.split("taken\n").length > pids.length, "each waits for the file system's answer");
    const { frozen, freezePending } = await client.snapshots.prepare({ freezeMs: LONG_MS });
    assert.deepEqual([frozen, freezePending?.count], [true, pids.length]);
    const named = freezePending?.processes ?? [];
    assert.equal(new Set(named.map(({ pid }) => pid)).size, 8);
    for (const { pid, name, waitChannel } of named) {
      assert.ok(pids.includes(pid), `${pid} is not of ${pids.join(", ")}`);
      assert.equal(name, "cat");
      // Where the kernel does not show it, the file has 0.
      assert.equal(waitChannel, readFileSync(`/proc/${pid}/wchan`, "latin1").replace(/^0$/, ""));
    }
    await mount[Symbol.asyncDispose]();
    assert.equal(await runDuties(agent), false);
  });

  it("a freeze does not wait forever for a command that is starting", NEEDS_FUSE, async () => {
    await using mounted = await testDirectory();
    await using _mount = await fuseMount("hanging_mount", mounted.at("hung"));
    const workload = ticking();
    await using agent = await startAgent({ process: { args: workload.args } });
    using client = clientOf(agent);
    const hanging = new ExecStream(agent);
    hanging.start({ args: ["true"], cwd: mounted.at("hung") });
    const isStarting = (): boolean => allProcesses().filter(({ parent }) => parent === agent.pid).length > 1;
    await until(async () => (await client.health()).alive && isStarting(), "it is being started");
    assert.deepEqual(await freeze(client), [false, "starts_in_flight"]);
    await workload.runs();
    hanging[Symbol.dispose]();
  });
});

it("a freeze without cgroups fails with no_cgroups", NEEDS_NAMESPACES, async () => {
  const workload = ticking();
  await using agent = await startAgent({ through: withoutCgroups(), process: { args: workload.args } });
  using client = clientOf(agent);
  assert.deepEqual(await freeze(client), [false, "no_cgroups"]);
  await workload.runs();
});

async function started(stream: ExecStream): Promise<number> {
  const frame = await stream.next();
  assert.equal(frame?.case, "started");
  return frame.value.pid;
}

/** The file that freezes the session of the agent with this cgroup. */
function freezeFileIn(base: string): string {
  return `${base}/${readdirSync(base).find((name) => name.endsWith("-session"))}/cgroup.freeze`;
}
