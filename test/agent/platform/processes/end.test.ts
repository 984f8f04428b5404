import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openDescriptors, ownZombies, processById } from "../../../fixtures/proc.ts";
import { program } from "../../../fixtures/programs/index.ts";
import { addon, launch, processes, request, run } from "../../../fixtures/spawning.ts";

test("an ended child keeps its process id until it is released, and gets no signals afterwards", async () => {
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

test("500 children, on pipes and in terminals, leave no descriptor and no zombie", async () => {
  await run(request(["/bin/true"]));
  const before = openDescriptors();
  for (let round = 0; round < 50; round++) {
    const plans = Array.from({ length: 10 }, (_, i) =>
      i % 5 === 0
        ? ({ kind: "terminal", cols: 80, rows: 24 } as const)
        : ({ kind: "pipes", stdin: i % 2 === 0 } as const),
    );
    await Promise.all(plans.map((stdio) => run(request(["/bin/true"], { stdio }))));
  }
  assert.deepEqual(openDescriptors(), before);
  assert.deepEqual(ownZombies(), []);
});

test("a child that survives SIGKILL, as it hangs in the kernel, can be released, and is reaped when it ends after all", async (t) => {
  if (process.getuid?.() !== 0) {
    t.skip("needs root");
    return;
  }
  const folder = await mkdtemp(join(tmpdir(), "guest-agent-hang-"));
  try {
    const server = request([program("hanging_mount"), folder, "serve"], { stdio: { kind: "pipes", stdin: true } });
    await using mount = await launch(server);
    if ((await mount.stdout.until(/ready/).catch(() => undefined)) === undefined) {
      t.skip("needs FUSE");
      return;
    }
    const child = await processes.spawn(request(["/bin/cat", join(folder, "file")]));
    await mount.stdout.until(/taken/);
    assert.equal(await child.tree.killWithin(100), false);
    child.release();
    mount.child.stdin?.end();
    await mount.child.ended;
    assert.equal((await child.ended).signal, 9);
    assert.equal(processById(child.pid), undefined);
  } finally {
    await rm(folder, { recursive: true });
  }
});
