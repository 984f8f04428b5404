import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, describe, test } from "node:test";
import { Stage } from "./cases/stage.ts";

describe("a guest whose kernel has no generator ready when init starts", () => {
  // No RDRAND, and nothing from the boot loader.
  const stage = new Stage({ processor: "qemu64", kernelArguments: "random.trust_cpu=off random.trust_bootloader=off" });
  after(() => stage.end());

  test("the agent starts before the kernel's random generator is ready", async () => {
    await stage.boot();
    assert.match(stage.machine.console, /GUEST-GENERATOR not ready, reseed ENODATA/);
    using client = stage.client();
    const duties = await client.snapshots.duties({ entropy: randomBytes(64) });
    assert.deepEqual([duties.entropyBytesMixed, duties.entropyCredited, duties.degraded], [64, true, ""]);
  });
});
