import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test, type TestContext } from "node:test";
import { CLONE_CHECKS } from "../clones/checks.ts";
import { clone, type Clones } from "../clones/clone.ts";
import { Source } from "../clones/source.ts";
import { drawTheSame } from "../clones/draws.ts";
import type { Machine } from "../harness/machine.ts";
import { clockTolerance, readClocks } from "../harness/oracle.ts";
import type { Stage } from "./stage.ts";

const CALLS_AT_ONCE = 8;

/**
 * Several clones of one snapshot, whose source is the stage's machine.
 *
 * @param hasVdso the kernel has a getrandom in its vDSO: since 6.11 for x64, 6.12 for arm64
 */
export function cloneCases(stage: Stage, { hasVdso }: { readonly hasVdso: boolean }): void {
  let clones: Clones | undefined;
  const seen = (): Clones => {
    if (clones === undefined) throw new Error("there are no clones: see the case that makes them");
    return clones;
  };

  test("snapshots work while a command, a connection and a hook are active", async (t) => {
    await using source = await Source.prepare(stage.guest, stage.takeMachine());
    clones = await clone(stage.guest, source, (machine) => repeatedDuties(t, stage, machine));
    const [{ duties, dutiesTookMs, driftBeforeMs, driftAfterMs }] = clones.pair;
    t.diagnostic(
      `${clones.snapshots} snapshot(s); drift ${driftBeforeMs.toFixed(1)} ms, reported ${duties.clockDriftMs} ms, ` +
        `after the duties ${driftAfterMs.toFixed(1)} ms; they took ${dutiesTookMs.toFixed(0)} ms`,
    );
  });

  test("as a control, two clones without restore steps draw equal random numbers", () => {
    const [one, other] = seen().control;
    assert.equal(one.first.vdso.length > 0, hasVdso, "the vDSO is asked where there is one");
    assert.ok(drawTheSame(one.first, other.first), "the first time");
    assert.ok(drawTheSame(one.second, other.second), "the second time");
  });

  test("before their restore steps, clones draw equal random numbers (control experiment)", () => {
    const { control, pair } = seen();
    assert.ok(drawTheSame(pair[0].before, pair[1].before));
    assert.ok(drawTheSame(pair[0].before, control[0].first));
  });

  for (const { title, check } of CLONE_CHECKS) test(title, () => check(seen().pair));
}

/** In one of the clones, after everything else. */
async function repeatedDuties(t: TestContext, stage: Stage, machine: Machine): Promise<void> {
  await t.test("repeated and concurrent restore steps mix entropy and keep the clock right", async () => {
    using client = stage.guest.client(machine);
    await client.health();
    const began = performance.now();
    const calls = Array.from({ length: CALLS_AT_ONCE }, () =>
      client.snapshots.duties({ entropy: randomBytes(64), hostTime: new Date() }),
    );
    const all = await Promise.all(calls);
    for (const { entropyBytesMixed, entropyCredited, clockStepped, degraded } of all) {
      assert.deepEqual([entropyBytesMixed, entropyCredited], [64, true]);
      assert.equal(degraded, clockStepped ? "" : "clock_stale");
    }
    assert.ok(all.some(({ clockStepped }) => clockStepped));
    const toleranceMs = clockTolerance(performance.now() - began);
    const { driftMs } = await readClocks(machine.oraclePort);
    assert.ok(Math.abs(driftMs) < toleranceMs, `${driftMs} ms after concurrent duties`);
  });
}
