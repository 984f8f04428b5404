// The runner gives this file a network of its own: all agents of a fleet have one port, at addresses of the loopback.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SweepReport } from "../../src/node/sandboxes/index.ts";
import { until } from "../fixtures/awake.ts";
import { Fleet, type FleetNode, names, provideFleet, unreachable } from "./fleet.ts";
import { NodeSide } from "./node-process.ts";
import { shareOfACore } from "./quota.ts";

const provided = await provideFleet();
const skip = typeof provided === "string" ? provided : false;

test("with a twentieth of a core, `sweep` restores forty sandboxes", { skip }, async () => {
  assert.ok(typeof provided !== "string");
  const [count, silent] = [50, 10];
  await using place = await Fleet.start({ ...provided, hookMs: 50, dutiesMs: 10, count, isFrozen: true, silent });
  const [node] = place.nodes as [FleetNode];
  using quota = shareOfACore(0.05);
  await using side = await NodeSide.start({ ...node, operation: "sweep", reachTimeoutMs: 30_000 });
  quota.add(side.pid);
  side.begin();
  await until(async () => (await place.counts()).duties === count - silent, "all others have done their duties");
  await until(async () => ((await place.counts()).calls["RunHook"] ?? 0) === count - silent, "all hooks have run");
  // The rest only waits for the silent ones.
  quota.allow(0.5);
  const report = (await side.done()).result as SweepReport;
  assert.deepEqual(report.awakened.toSorted(), names(silent, count));
  assert.deepEqual(report.failed.map(({ name, code }) => `${name} ${code}`).toSorted(), unreachable(silent));
  const { duties, late, handshakes, calls } = await place.counts();
  assert.deepEqual([duties, late], [count - silent, 0]);
  // Two connections for each: the duties are not repeated because an answer was read late, and no dial starts anew.
  assert.ok(handshakes <= 3 * (count - silent), `${handshakes} handshakes`);
  assert.ok((calls["RunRestoreDuties"] ?? 0) <= 1.5 * (count - silent), JSON.stringify(calls));
});
