import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { cloneCases } from "../cases/clone-cases.ts";
import { Stage } from "../cases/stage.ts";
import { standbyCases } from "../cases/standby-cases.ts";
import { CLONE_HOOKS } from "../clones/source.ts";

describe("Linux 6.12", () => {
  const stage = new Stage({ kernel: "6.12", hooks: CLONE_HOOKS });
  after(() => stage.end());

  test("boots once more, and its workload declares itself idle before it is put on standby", async () => {
    await stage.boot();
    using client = stage.client();
    const { stdout } = await client.run({ args: ["/bin/busybox", "uname", "-m"] });
    assert.equal(stdout.toString(), "aarch64\n");
    await client.run({ args: ["/bin/busybox", "killall", "-USR1", "workload"] });
    while ((await client.health()).idleDeclared === undefined) await pause(50);
  });

  standbyCases(stage);
  cloneCases(stage, { hasVdso: true });
});
