import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { testFolder } from "../../../fixtures/files.ts";
import { fuseMount } from "../../../fixtures/fuse-mount.ts";
import { NEEDS_FUSE } from "../../../fixtures/privileges.ts";
import { ownZombies, processById } from "../../../fixtures/proc.ts";
import { addon, processes, request } from "../../../fixtures/spawning.ts";

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

test(
  "a child that survives SIGKILL, as it hangs in the kernel, can be released, and is reaped when it ends after all",
  NEEDS_FUSE,
  async () => {
    await using folder = await testFolder();
    await using mount = await fuseMount("hanging_mount", folder.at("hung"), ["serve"]);
    const taken = once(mount.server.stdout, "data");
    const child = await processes.spawn(request(["/bin/cat", folder.at("hung/file")]));
    await taken;
    assert.equal(await child.tree.killWithin(100), false);
    child.release();
    await mount[Symbol.asyncDispose]();
    assert.equal((await child.ended).signal, 9);
    assert.equal(processById(child.pid), undefined);
  },
);
