import assert from "node:assert/strict";
import { it } from "node:test";
import { GROWTH_LIMIT_BYTES, soak } from "../../../scripts/soak/soak.ts";
import { NEEDS_INSIGHT } from "../../fixtures/privileges.ts";

it("500 mixed execs, 50 at once, lose no byte and leave nothing behind", NEEDS_INSIGHT, async () => {
  const { failures, incomplete, cleanUps, connections, before, after, grownBytes } = await soak(500, 50);
  assert.deepEqual(failures, []);
  assert.equal(incomplete, 0, "exits that call output incomplete of which nothing is missing");
  assert.ok(cleanUps.due > 0);
  assert.equal(cleanUps.done, cleanUps.due, "trees that had their whole grace");
  assert.deepEqual(connections.differences, [], "connections that are counted, and sockets that are open");
  assert.ok(connections.most > 1 && connections.compared > 1, "there were some to compare");
  assert.deepEqual(after, before);
  assert.ok(grownBytes < GROWTH_LIMIT_BYTES, `grew by ${grownBytes} bytes`);
});
