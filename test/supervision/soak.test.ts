import assert from "node:assert/strict";
import { it } from "node:test";
import { soak } from "../../scripts/soak/soak.ts";

it("500 mixed execs, 50 at once, lose no byte and leave nothing behind", { timeout: 240_000 }, async () => {
  const { failures, before, after, grownBytes } = await soak(500, 50);
  assert.deepEqual(failures, []);
  assert.deepEqual(after, before);
  assert.ok(grownBytes < 64 * 2 ** 20, `grew by ${grownBytes} bytes`);
});
