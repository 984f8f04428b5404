import assert from "node:assert/strict";
import { it } from "node:test";
import { abuse, type AbuseRow } from "../../abuse/abuse.ts";
import { mixedExecs } from "../../abuse/mix.ts";
import { NEEDS_INSIGHT } from "../../fixtures/privileges.ts";

it("500 mixed execs, 50 at once, lose no byte and leave nothing behind", NEEDS_INSIGHT, async () => {
  const rows: AbuseRow[] = [];
  await abuse({ seed: 1, inputs: 500, attacks: mixedExecs, onRow: (row) => rows.push(row) });
  assert.deepEqual(
    rows.map(({ left, problem }) => [left, problem]),
    [["", ""]],
  );
});
