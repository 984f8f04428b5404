import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { constants } from "node:os";
import { test } from "node:test";
import { BufferPool } from "../../../../src/agent/domain/index.ts";
import type { Addon } from "../../../../src/agent/native/index.ts";
import { Cgroups, NativeProcesses, STREAM_BUFFERS } from "../../../../src/agent/platform/index.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { fuseMount, program, script } from "../../../fixtures/programs/index.ts";
import { NEEDS_NAMESPACES } from "../../../fixtures/namespaces.ts";
import { NEEDS_FUSE, NEEDS_ROOT } from "../../../fixtures/privileges.ts";
import { childrenOf, ownZombies, processById } from "../../../fixtures/proc.ts";
import { addon, bytes, launch, processes, request, run } from "../../../fixtures/spawning.ts";

test("an ended child's pid is reserved until release(); later signals do nothing", async () => {
  const child = await processes.spawn(request(["/bin/true"]));
  await child.ended;
  assert.deepEqual(
    ownZombies().map((zombie) => zombie.pid),
    [child.pid],
  );
  assert.equal(addon.kill(child.pid, 0), 0);
  child.release();
  assert.deepEqual(ownZombies(), []);
  child.signal(9);
  child.signalGroup(9);
  await child.tree.signal(9);
  assert.equal(await child.tree.killWithin(0), true);
  assert.equal(await child.session.killWithin(0), true);
  child.release();
});

test("after release(), a child that survived SIGKILL is reaped when it ends", NEEDS_FUSE, async () => {
  await using directory = await testDirectory();
  await using mount = await fuseMount("hanging_mount", directory.at("hung"), ["take"]);
  const taken = once(mount.server.stdout, "data");
  const child = await processes.spawn(request(["/bin/cat", directory.at("hung/file")]));
  await taken;
  assert.equal(await child.tree.killWithin(100), false);
  child.release();
  await mount[Symbol.asyncDispose]();
  assert.equal((await child.ended).signal, 9);
  assert.equal(processById(child.pid), undefined);
});

test("a child leads a new process group in the agent's POSIX session", async () => {
  // proc_pid_stat(5): process id, name, state, parent, group, session.
  const { stdout } = await run(request(script("inherit", "/bin/cat", "/proc/self/stat")));
  const [pid, , , parent, group, session] = stdout.toString().split(" ");
  assert.equal(group, pid);
  assert.equal(session, parent);
});

test("a child inherits only standard streams, even if seccomp refuses close_range", async () => {
  const command = script("inherit", "/bin/ls", "/proc/self/fd");
  for (const filter of [[], [program("no_close_range")]]) {
    const { stdout, stderr, end } = await run(request([...filter, ...command]));
    assert.deepEqual([stdout.toString(), stderr.toString(), end.code], ["0\n1\n2\n3\n", "", 0]);
  }
});

test("a child on a terminal runs in the foreground; Ctrl-C interrupts it", async () => {
  const command = script("inherit", "/bin/sh", "-c", "stty -echo; echo ready; read line; echo got $line; exec cat");
  await using running = await launch(request(command, { stdio: { kind: "terminal", cols: 80, rows: 24 } }));
  await running.stdout.until(/ready/);
  await running.child.stdin?.write(bytes("typed\n"));
  await running.stdout.until(/got typed/);
  await running.child.stdin?.write(bytes("to cat\n"));
  await running.stdout.until(/to cat/);
  await running.child.stdin?.write(Uint8Array.of(3));
  assert.equal((await running.child.ended).code, 130);
});

test("a child can reopen its output pipes although another user created them", NEEDS_ROOT, async () => {
  const command = script("inherit", "--uid=12345", "/bin/sh", "-c", "id -u > /dev/stdout");
  assert.equal((await run(request(command))).stdout.toString(), "12345\n");
});

const SIGKILL = 9;

test("a process that reuses an ended child's id gets no signal", NEEDS_NAMESPACES, () => {
  const { stdout, stderr } = spawnSync("unshare", ["-pf", "--kill-child", "--mount-proc", ...script("reuse-id")], {
    encoding: "utf8",
    timeout: 500_000,
  });
  const spared = { outsiderHasTheId: true, outsiderLives: true };
  assert.notEqual(stdout, "", stderr);
  assert.deepEqual(JSON.parse(stdout), { signalled: spared, killed: spared, contained: spared });
});

test("signalProcess signals a process only if both process id and start time match", () => {
  const own = addon.processRows(Int32Array.of(process.pid));
  assert.ok(typeof own !== "number");
  const start = own[5] ?? 0;
  assert.equal(addon.signalProcess(process.pid, start, 0), 0);
  assert.equal(addon.signalProcess(process.pid, start + 1, SIGKILL), -3);
  assert.equal(addon.signalProcess(1, start, 0), -22);
});

const ABORTED = { name: "SpawnError", step: "killed", errno: "ECANCELED" };

test("after an abort, a process start that failed is not retried", async (t) => {
  const cgroups = Cgroups.open(addon);
  if (cgroups === undefined) {
    t.skip("needs cgroups");
    return;
  }
  const abort = new AbortController();
  let starts = 0;
  const calls: Pick<Addon, "spawn" | "abortSpawn"> = {
    spawn: (_block, _settings, done) => {
      setImmediate(() => {
        abort.abort();
        done(constants.errno.EBUSY, "cgroup", 0, -1, -1, -1);
      });
      return ++starts;
    },
    abortSpawn: () => 0,
  };
  const refusing: Addon = Object.assign(Object.create(addon) as Addon, calls);
  const inCgroups = new NativeProcesses(refusing, new BufferPool(STREAM_BUFFERS), { openFilesLimit: 1024, cgroups });
  await assert.rejects(inCgroups.spawn(request(["/bin/true"]), abort.signal), ABORTED);
  assert.equal(starts, 1);
  cgroups.close();
});

test("abortedStartsSettled() waits until a child that already runs is killed", async () => {
  const own = new NativeProcesses(addon, new BufferPool(STREAM_BUFFERS), { openFilesLimit: 1024 });
  const abort = new AbortController();
  const refused = assert.rejects(own.spawn(request(["/bin/sleep", "1000"]), abort.signal), ABORTED);
  // The child executes its command while this thread is busy. So the abort comes after that, but before `own` learns of
  // it.
  let sleeping: number | undefined;
  while (sleeping === undefined) sleeping = childrenOf(process.pid).find((pid) => processById(pid)?.name === "sleep");
  abort.abort();
  await own.abortedStartsSettled();
  assert.equal(processById(sleeping), undefined);
  await refused;
});
