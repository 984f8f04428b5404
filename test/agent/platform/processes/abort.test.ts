import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { BufferPool } from "../../../../src/agent/domain/index.ts";
import type { Addon } from "../../../../src/agent/native/index.ts";
import { Cgroups, NativeProcesses, STREAM_BUFFERS } from "../../../../src/agent/platform/index.ts";
import { addon, request } from "../../../fixtures/spawning.ts";

const ABORTED = { name: "SpawnError", step: "killed", errno: "ECANCELED" };

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
