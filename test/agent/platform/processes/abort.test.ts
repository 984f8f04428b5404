import assert from "node:assert/strict";
import { mkdtemp, rmdir } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { BufferPool, KILL_WAIT_MS } from "../../../../src/agent/domain/index.ts";
import type { Addon } from "../../../../src/agent/native/index.ts";
import { Cgroups, NativeProcesses, STREAM_BUFFERS } from "../../../../src/agent/platform/index.ts";
import { allProcesses, openDescriptors } from "../../../fixtures/proc.ts";
import { program } from "../../../fixtures/programs/index.ts";
import { addon, launch, processes, request, run } from "../../../fixtures/spawning.ts";

const ABORTED = { name: "SpawnError", step: "killed", errno: "ECANCELED" };

test("a start that was aborted before is refused", async () => {
  await assert.rejects(processes.spawn(request(["/bin/true"]), AbortSignal.abort()), ABORTED);
});

test("an abort at any moment either rejects and leaves nothing, or has no effect", async () => {
  await run(request(["/bin/true"]));
  const before = openDescriptors();
  for (let i = 0; i < 100; i++) {
    const abort = new AbortController();
    const started = processes.spawn(request(["/bin/sleep", "60"]), abort.signal);
    if (i % 2 === 0) abort.abort();
    else setImmediate(() => abort.abort());
    await assert.rejects(started, ABORTED).catch(async () => {
      const child = await started;
      await child.tree.killWithin(KILL_WAIT_MS);
      await child.ended;
      child.release();
    });
  }
  assert.deepEqual(openDescriptors(), before);
  assert.deepEqual(
    allProcesses().filter((found) => found.parent === process.pid),
    [],
  );
});

test("a start that hangs in a dead file system blocks nobody and can be aborted", async (t) => {
  if (process.getuid?.() !== 0) {
    t.skip("needs root");
    return;
  }
  const folder = await mkdtemp(join(tmpdir(), "guest-agent-hang-"));
  try {
    await using mount = await launch(
      request([program("hanging_mount"), folder], { stdio: { kind: "pipes", stdin: true } }),
    );
    const ready = await mount.stdout.until(/ready/).catch(() => undefined);
    if (ready === undefined) {
      t.skip("needs FUSE");
      return;
    }
    for (const hanging of [request(["/bin/true"], { cwd: folder }), request([join(folder, "command")])]) {
      const abort = new AbortController();
      const started = processes.spawn(hanging, abort.signal);
      started.catch(() => {});
      assert.deepEqual((await run(request(["/bin/echo", "alive"]))).stdout.toString(), "alive\n");
      abort.abort();
      await assert.rejects(started, ABORTED);
    }
    mount.child.stdin?.end();
    assert.equal((await mount.child.ended).code, 0);
  } finally {
    await rmdir(folder);
  }
});

test("an abort while the kernel refuses a start in a cgroup is not forgotten by the start without one", async (t) => {
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
