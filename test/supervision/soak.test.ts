import assert from "node:assert/strict";
import { it } from "node:test";
import { soak } from "../../scripts/soak/soak.ts";
import { NEEDS_ROOT } from "../fixtures/privileges.ts";

it(
  "500 mixed execs, 50 at once, lose no byte and leave nothing behind",
  { ...NEEDS_ROOT, timeout: 240_000 },
  async () => {
    const { failures, before, after, grownBytes } = await soak(500, 50);
    assert.deepEqual(failures, []);
    assert.deepEqual(after, before);
    assert.ok(grownBytes < 64 * 2 ** 20, `grew by ${grownBytes} bytes`);
  },
);
