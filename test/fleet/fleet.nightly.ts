import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { SweepReport } from "../../src/node/sandboxes/index.ts";
import { Journal } from "../../src/node/sandboxes/node/index.ts";
import { until } from "../fixtures/awake.ts";
import { Fleet, type FleetNode, type FleetOptions, nameOf, provideFleet, requestsOf } from "./fleet.ts";
import { measured, NodeSide } from "./node-process.ts";

const COUNT = 100;
const provided = await provideFleet();
const skip = typeof provided === "string" ? provided : false;

function fleet(options: Omit<FleetOptions, "program">): Promise<Fleet> {
  assert.ok(typeof provided !== "string");
  return Fleet.start({ ...provided, hookMs: 50, dutiesMs: 10, ...options });
}

async function sweep(node: FleetNode, reachTimeoutMs?: number): Promise<SweepReport> {
  return (await measured({ ...node, operation: "sweep", reachTimeoutMs })).result as SweepReport;
}

/** Names of the sandboxes that have not done their duties, by the journal. */
async function asleep({ folder }: FleetNode): Promise<string[]> {
  const journal = await Journal.open(folder, true);
  try {
    return journal
      .all()
      .flatMap((entry) => (entry.kind === "sandbox" && entry.runEpochMs === undefined ? [entry.name] : []));
  } finally {
    journal.close();
  }
}

function names(from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, at) => nameOf(from + at));
}

describe("a node with a hundred sandboxes", { skip }, () => {
  test("sweeps all of them after its process was killed in the middle of a sweep", async () => {
    await using place = await fleet({ count: COUNT, isFrozen: true });
    const [node] = place.nodes as [FleetNode];
    await using first = await NodeSide.start({ ...node, operation: "sweep" });
    first.begin();
    await until(async () => (await place.counts()).duties >= COUNT / 4, "a quarter has done its duties");
    await first.kill();
    const left = await asleep(node);
    assert.ok(left.length > 0 && left.length < COUNT, `${left.length} are left`);
    const { awakened, late, failed, removed, orphans } = await sweep(node);
    assert.deepEqual(awakened.toSorted(), left);
    assert.deepEqual([late, failed, removed, orphans], [[], [], [], []]);
    const { duties, late: thawed } = await place.counts();
    assert.deepEqual([duties, thawed, await asleep(node)], [COUNT, 0, []]);
    assert.deepEqual((await sweep(node)).awakened, [], "the third sweep finds all in order");
  });

  test("keeps no sandbox that can answer waiting for ten that are silent and thaw first", async () => {
    const silent = 10;
    await using place = await fleet({ count: COUNT, isFrozen: true, silent });
    const [node] = place.nodes as [FleetNode];
    await using side = await NodeSide.start({ ...node, operation: "sweep", reachTimeoutMs: 20_000 });
    side.begin();
    await until(async () => (await place.counts()).duties === COUNT - silent, "all others have done their duties");
    assert.deepEqual(await asleepOrLater(node, silent), names(0, silent));
    const report = (await side.done()).result as SweepReport;
    assert.deepEqual(report.awakened.toSorted(), names(silent, COUNT));
    assert.deepEqual(
      report.failed.map(({ name, code }) => `${name} ${code}`).toSorted(),
      names(0, silent).map((name) => `${name} AGENT_UNREACHABLE`),
    );
    const { late, accepted, handshakes } = await place.counts();
    assert.equal(late, 0);
    // A silent agent is dialled a few times, and each failure is looked into by one more connection.
    assert.ok(accepted - handshakes <= 10 * silent, `${accepted - handshakes} connections to silent agents`);
  });

  test("shares a daemon with another node: each awakens its own and touches nothing else", async () => {
    await using place = await fleet({ count: COUNT / 2, nodes: ["node-1", "node-2"], isFrozen: true });
    const reports = await Promise.all(place.nodes.map((node) => sweep(node)));
    for (const { awakened, removed, orphans, failed } of reports)
      assert.deepEqual([awakened.length, removed, orphans, failed], [COUNT / 2, [], [], []]);
    const { duties, calls } = await place.counts();
    assert.equal(duties, COUNT);
    assert.deepEqual(
      Object.keys(calls).filter((call) => call.startsWith("DELETE")),
      [],
    );
  });

  test("is swept, listed and watched by listings, however many sandboxes it has", async () => {
    await using place = await fleet({ count: COUNT, snapshots: COUNT });
    const [node] = place.nodes as [FleetNode];
    // Its snapshots have no entry, and go.
    assert.equal((await sweep(node)).orphans.length, COUNT);
    await place.reset();
    assert.deepEqual(await sweep(node), {
      removed: [],
      orphans: [],
      awakened: [],
      late: [],
      warnings: [],
      completed: [],
      failed: [],
    });
    const { result } = await measured({ ...node, operation: "list" });
    assert.equal(result, COUNT);
    const counts = await place.counts();
    assert.equal(requestsOf(counts), 6 + 3, JSON.stringify(counts.calls));
    assert.equal(counts.handshakes, 0);
  });

  test("is watched with one connection for each sandbox, and reports none as unreachable", async () => {
    await using place = await fleet({ count: COUNT });
    const [node] = place.nodes as [FleetNode];
    await using side = await NodeSide.start({ ...node, operation: "watch" });
    side.begin();
    await until(async () => ((await place.counts()).calls["Health"] ?? 0) >= 3 * COUNT, "three rounds");
    const counts = await place.counts();
    side.end();
    assert.deepEqual((await side.done()).events, []);
    assert.deepEqual(
      [counts.handshakes, counts.accepted, requestsOf(counts)],
      [COUNT, COUNT, 3],
      JSON.stringify(counts.calls),
    );
  });
});

/** Those without duties once the journal has what the agents have: an entry is written after its hook. */
async function asleepOrLater(node: FleetNode, count: number): Promise<string[]> {
  await until(async () => (await asleep(node)).length <= count, "the journal has all others");
  return asleep(node);
}
