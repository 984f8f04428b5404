// The runner gives this file a network of its own: all agents of a fleet have one port, at addresses of the loopback.
import assert from "node:assert/strict";
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { SweepReport } from "../../src/node/sandboxes/index.ts";
import { Journal } from "../../src/node/sandboxes/state/index.ts";
import { until } from "../fixtures/awake.ts";
import { SWEPT_NOTHING } from "../node/sandboxes/node.ts";
import {
  Fleet,
  type FleetNode,
  type FleetOptions,
  makeArchive,
  nameOf,
  names,
  provideFleet,
  requestsOf,
  unreachable,
} from "./fleet.ts";
import { measured, NodeSide } from "./node-process.ts";
import { shareOfACore } from "./quota.ts";

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
async function asleep({ directory }: FleetNode): Promise<string[]> {
  const journal = await Journal.open(directory, true);
  try {
    return journal
      .all()
      .flatMap((entry) => (entry.kind === "sandbox" && entry.runEpochMs === undefined ? [entry.name] : []));
  } finally {
    journal.close();
  }
}

describe("a node with a hundred sandboxes", { skip }, () => {
  test("`sweep` restores all 100 sandboxes after two earlier sweeps were killed", async () => {
    await using place = await fleet({ count: COUNT, isFrozen: true });
    const [node] = place.nodes as [FleetNode];
    {
      await using first = await NodeSide.start({ ...node, operation: "sweep" });
      first.begin();
      await until(async () => (await place.counts()).duties >= COUNT / 4, "a quarter has done its duties");
      await first.kill();
    }
    await using second = await NodeSide.start({ ...node, operation: "sweep" });
    second.begin();
    await until(async () => (await asleep(node)).length <= (3 * COUNT) / 4, "a quarter is done");
    await second.kill();
    const left = await asleep(node);
    assert.ok(left.length > 0 && left.length < COUNT, `${left.length} are left`);
    const { awakened, late, failed, removed, orphans } = await sweep(node);
    assert.deepEqual(awakened.toSorted(), left);
    assert.deepEqual([late, failed, removed, orphans], [[], [], [], []]);
    const { duties, late: thawed } = await place.counts();
    assert.deepEqual([duties, thawed, await asleep(node)], [COUNT, 0, []]);
    assert.deepEqual((await sweep(node)).awakened, [], "the fourth sweep finds all in order");
  });

  test("`sweep` runs the restore steps of all sandboxes before the first hook", async () => {
    await using place = await fleet({ count: COUNT, isFrozen: true, hookMs: 500 });
    const [node] = place.nodes as [FleetNode];
    await using side = await NodeSide.start({ ...node, operation: "sweep" });
    side.begin();
    await until(async () => {
      const { calls, duties } = await place.counts();
      // On a busy machine an agent may be silent for half a second, and is then not waited for.
      if ((calls["RunHook"] ?? 0) > 0) assert.ok(duties >= 0.9 * COUNT, `${duties} have done their duties`);
      return (calls["RunHook"] ?? 0) === COUNT;
    }, "all hooks have run");
    const { result, dialsInOneTurn } = await side.done();
    const { awakened, late, failed } = result as SweepReport;
    assert.deepEqual([awakened.length, late, failed], [COUNT, [], []]);
    // One in each turn, because more would block the event loop; the count may include the first of the next turn.
    assert.ok(dialsInOneTurn <= 2, `${dialsInOneTurn} connections in one turn`);
  });

  test("two nodes that share a daemon restore only their own sandboxes", async () => {
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

  test("`sweep` and `list` send nine requests in total for 100 sandboxes", async () => {
    await using place = await fleet({ count: COUNT, snapshots: COUNT });
    const [node] = place.nodes as [FleetNode];
    // Its snapshots have no entry, and go.
    assert.equal((await sweep(node)).orphans.length, COUNT);
    await place.reset();
    assert.deepEqual(await sweep(node), SWEPT_NOTHING);
    const { result } = await measured({ ...node, operation: "list" });
    assert.equal(result, COUNT);
    const counts = await place.counts();
    assert.equal(requestsOf(counts), 6 + 3, JSON.stringify(counts.calls));
    assert.equal(counts.handshakes, 0);
  });

  test("creating 20 sandboxes at once requests the list of ingresses at most ten times", async () => {
    await using empty = await fleet({ count: 0 });
    const [node] = empty.nodes as [FleetNode];
    await using place = await mkdtempDisposable(join(tmpdir(), "fleet-archive-"));
    const agentArchive = join(place.path, "agent.tar.gz");
    await makeArchive(place.path, agentArchive, 1_000);
    const { result } = await measured({ ...node, operation: "create", count: 20, agentArchive });
    const { calls } = await empty.counts();
    assert.deepEqual([result, calls["POST /instances"]], [[], 20]);
    // Those that ask while a listing runs share the next one. How many share it depends on the machine's speed.
    assert.ok((calls["GET /ingresses"] ?? 0) <= 20 / 2, JSON.stringify(calls));
  });
});

/** These wait for silent sandboxes, for a quota, or for the rounds of a watch, and compute little: all run at once. */
describe("a node with a hundred sandboxes that has to wait", { skip, concurrency: true }, () => {
  test("ten silent sandboxes do not delay the restore of the other ninety", async () => {
    const silent = 10;
    await using place = await fleet({ count: COUNT, isFrozen: true, silent });
    const [node] = place.nodes as [FleetNode];
    await using side = await NodeSide.start({ ...node, operation: "sweep", reachTimeoutMs: 20_000 });
    side.begin();
    await until(async () => (await place.counts()).duties === COUNT - silent, "all others have done their duties");
    assert.deepEqual(await asleepOrLater(node, silent), names(0, silent));
    const report = (await side.done()).result as SweepReport;
    assert.deepEqual(report.awakened.toSorted(), names(silent, COUNT));
    assert.deepEqual(report.failed.map(({ name, code }) => `${name} ${code}`).toSorted(), unreachable(silent));
    const { late, accepted, handshakes } = await place.counts();
    assert.equal(late, 0);
    // A silent agent is dialled a few times, and each failure is looked into by one more connection.
    assert.ok(accepted - handshakes <= 10 * silent, `${accepted - handshakes} connections to silent agents`);
  });

  test("on a tenth of a core, `sweep` thaws ninety sandboxes in time", async () => {
    const silent = 10;
    await using place = await fleet({ count: COUNT, isFrozen: true, silent });
    const [node] = place.nodes as [FleetNode];
    using quota = shareOfACore(0.1);
    await using side = await NodeSide.start({ ...node, operation: "sweep", reachTimeoutMs: 30_000 });
    quota.add(side.pid);
    side.begin();
    await until(async () => (await place.counts()).duties === COUNT - silent, "all others have done their duties");
    // What follows takes about 0.15 s of CPU time for each sandbox, and nothing has to be in time any more.
    quota.allow(0.5);
    const report = (await side.done()).result as SweepReport;
    assert.deepEqual(
      report.failed
        .map(({ name, code, message }) => [name, code, message])
        .filter(([name = ""]) => name >= nameOf(silent)),
      [],
    );
    assert.deepEqual(report.awakened.toSorted(), names(silent, COUNT));
    assert.equal(report.failed.length, silent);
    const { duties, late, handshakes, calls } = await place.counts();
    assert.deepEqual([duties, late], [COUNT - silent, 0]);
    // The daemon is asked about silent sandboxes, every few seconds, and hardly about the others.
    assert.ok((calls["GET /instances/{id}"] ?? 0) <= COUNT + 10 * silent, JSON.stringify(calls));
    // Two connections each, and two more where the clock was set too late: none was given up and made once more.
    assert.ok(handshakes <= 4 * (COUNT - silent), `${handshakes} handshakes`);
  });

  test("on a tenth of a core, `watch` reports no sandbox as unreachable", async () => {
    await using place = await fleet({ count: COUNT });
    const [node] = place.nodes as [FleetNode];
    using quota = shareOfACore(0.1);
    await using side = await NodeSide.start({ ...node, operation: "watch" });
    quota.add(side.pid);
    side.begin();
    await until(async () => ((await place.counts()).calls["Health"] ?? 0) >= 5 * COUNT, "five rounds");
    const { handshakes } = await place.counts();
    side.end();
    assert.deepEqual([(await side.done()).events, handshakes], [[], COUNT]);
  });

  test("`watch` uses one connection per sandbox and reports no sandbox as unreachable", async () => {
    await using place = await fleet({ count: COUNT });
    const [node] = place.nodes as [FleetNode];
    await using side = await NodeSide.start({ ...node, operation: "watch" });
    side.begin();
    await until(async () => ((await place.counts()).calls["Health"] ?? 0) >= 3 * COUNT, "three rounds");
    const counts = await place.counts();
    side.end();
    assert.deepEqual((await side.done()).events, []);
    assert.deepEqual([counts.handshakes, counts.accepted], [COUNT, COUNT], JSON.stringify(counts.calls));
    // A listing takes three requests. A slow machine needs more than one round, and thus more than one listing, to
    // connect to all sandboxes.
    assert.ok(requestsOf(counts) <= COUNT / 4, JSON.stringify(counts.calls));
  });
});

/** Those without duties once the journal has what the agents have: an entry is written after its hook. */
async function asleepOrLater(node: FleetNode, count: number): Promise<string[]> {
  await until(async () => (await asleep(node)).length <= count, "the journal has all others");
  return asleep(node);
}
