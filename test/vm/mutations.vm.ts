import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type CheckName, CLONE_CHECKS, type Pair } from "./clones/checks.ts";
import { observeClone } from "./clones/clone.ts";
import { drawTheSame } from "./clones/draws.ts";
import { MUTATIONS, SHOW_OWN_NUMBERS } from "./clones/mutations.ts";
import { CLONE_HOOKS, Source } from "./clones/source.ts";
import { patchedAgent } from "./harness/agent-build.ts";
import { Guest } from "./harness/guest.ts";
import type { Patch } from "./harness/patches.ts";

/** Most attempts with a snapshot: numbers may differ for another reason than the duties. */
const MOST_SNAPSHOTS = 5;
const ALL = Object.keys(CLONE_CHECKS) as CheckName[];

/** Names of the checks that fail for two clones, with their errors. */
function failures(pair: Pair): Map<CheckName, string> {
  const failed = new Map<CheckName, string>();
  for (const name of ALL) {
    try {
      CLONE_CHECKS[name].check(pair);
    } catch (error) {
      if (!(error instanceof assert.AssertionError)) throw error;
      failed.set(name, error.message);
    }
  }
  return failed;
}

/** Clones a guest with a changed agent until two clones were alike before their duties and the verdict is as wanted. */
async function verdict(patches: readonly Patch[], wanted: readonly CheckName[]): Promise<Map<CheckName, string>> {
  using guest = await Guest.prepare({ agent: await patchedAgent(patches), hooks: CLONE_HOOKS });
  // If connections are not ended, that command is not either.
  const look = wanted.includes("connections") ? { hangupLimitMs: 0 } : {};
  await using source = await Source.prepare(guest, await guest.boot());
  for (let attempt = 1; ; attempt++) {
    const snapshot = await source.snapshot();
    const pair = [await observeClone(guest, snapshot, look), await observeClone(guest, snapshot, look)] as const;
    const failed = failures(pair);
    const alike = drawTheSame(pair[0].before, pair[1].before);
    if (attempt === MOST_SNAPSHOTS) assert.ok(alike, "the clones were never alike before their duties");
    if (attempt === MOST_SNAPSHOTS || (alike && wanted.every((name) => failed.has(name)))) return failed;
  }
}

describe("a build that leaves out a duty is caught", () => {
  test("what the mutants leave out is in the shipped program", () => {
    const program = readFileSync(join(import.meta.dirname, "../../dist/linux-x64/agent.bin"), "latin1");
    for (const trace of ["reseedCrng", "reseedOpenssl", "stepClock", "dropOtherConnections"])
      assert.ok(program.includes(trace));
    assert.ok(!program.includes("own_numbers"));
    assert.equal(MUTATIONS.length, 4);
  });

  test("with every duty, and its own numbers shown, it passes all checks", async () => {
    assert.deepEqual(await verdict([SHOW_OWN_NUMBERS], []), new Map());
  });

  for (const { without, patch, breaks, mayBreak } of MUTATIONS) {
    test(`without ${without}: ${breaks.map((name) => `"${CLONE_CHECKS[name].title}"`).join(", ")}`, async (t) => {
      const failed = await verdict([SHOW_OWN_NUMBERS, patch], breaks);
      for (const name of breaks) t.diagnostic(`${name}: ${failed.get(name)?.split("\n")[0] ?? "held"}`);
      for (const name of ALL) {
        if (breaks.includes(name)) assert.ok(failed.has(name), `"${CLONE_CHECKS[name].title}" did not notice`);
        else if (!mayBreak.includes(name)) assert.equal(failed.get(name), undefined, CLONE_CHECKS[name].title);
      }
    });
  }
});
