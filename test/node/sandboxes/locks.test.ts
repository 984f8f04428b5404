import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, test } from "node:test";
import type { SweepReport, WatchEvent } from "../../../src/node/sandboxes/index.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { codeOf, it, NodeProcess, openNode, partsOf, SWEPT_NOTHING } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

/** A sandbox "box", and another process that has asked the daemon to suspend it; the daemon is held at that. */
async function suspendedBy(substrate: HttpSubstrate): Promise<{ first: NodeProcess; release: () => void }> {
  using node = await openNode(partsOf(substrate));
  await node.create({ image: IMAGE, name: "box" });
  const { begun, release } = substrate.hold("POST /instances/{id}/standby");
  const first = new NodeProcess(substrate, "standby");
  await begun;
  return { first, release };
}

describe("two processes with one journal", NEEDS_NAMESPACES, () => {
  test("a second process waits for a sandbox's lock and names its holder", async () => {
    await using substrate = await HttpSubstrate.start();
    const { first, release } = await suspendedBy(substrate);
    const second = new NodeProcess(substrate, "remove", { lockTimeoutMs: 600_000 });
    const said = await second.said(/wait/);
    assert.match(
      said,
      new RegExp(`^remove box: wait for the standby of process ${first.child.pid}, which began at 2\\d{3}-`),
    );
    assert.ok(!substrate.requests.includes("DELETE /instances/{id}"));
    release();
    assert.deepEqual([await first.outcome(), await second.outcome()], ["done", "done"]);
    assert.deepEqual(substrate.left(), []);
  });

  test("SANDBOX_BUSY names the operation in progress, its process and its start time", async () => {
    await using substrate = await HttpSubstrate.start();
    const { first, release } = await suspendedBy(substrate);
    const second = new NodeProcess(substrate, "remove", { lockTimeoutMs: 1 });
    const busy = new RegExp(
      `^box has been busy for 1 ms with the standby of process ${first.child.pid}, which began at 2\\d{3}-`,
    );
    await second.said(busy);
    assert.equal(await second.outcome(), "SANDBOX_BUSY");
    // A program that uses the library gets the same error.
    using node = await openNode(partsOf(substrate), { lockTimeoutMs: 1 });
    assert.equal(await codeOf(node.resume("box")), "SANDBOX_BUSY");
    assert.deepEqual(await node.sweepPlan(), { restore: [], unfinished: [], orphans: [] });
    release();
    assert.equal(await first.outcome(), "done");
    await node.resume("box");
  });

  test("a killed process's lock is released, even if its pid is reused", async () => {
    await using substrate = await HttpSubstrate.start();
    const { first, release } = await suspendedBy(substrate);
    const second = new NodeProcess(substrate, "remove", { lockTimeoutMs: 600_000 });
    await second.said(/wait for the standby/);
    {
      // As if a living process had got the pid: this one.
      using database = new DatabaseSync(join(substrate.stateDirectory, "journal.sqlite"), { timeout: 600_000 });
      const { changes } = database
        .prepare("UPDATE lock SET pid = ? WHERE pid = ?")
        .run(process.pid, first.child.pid ?? 0);
      assert.equal(changes, 1);
    }
    await first.kill();
    assert.equal(await second.outcome(), "done");
    release();
    {
      using node = await openNode(partsOf(substrate));
      assert.deepEqual(await node.sweep(), SWEPT_NOTHING);
      await node.create({ image: IMAGE, name: "box" });
    }
    const files = await readdir(join(substrate.stateDirectory, "processes"));
    assert.deepEqual(files, [], "the next one that works removes the files of the dead, and at its end its own");
  });

  test("a sweep ignores another process's unfinished sandbox until that process has died", async () => {
    await using substrate = await HttpSubstrate.start();
    const { begun, release, done } = substrate.hold("POST /instances");
    const first = new NodeProcess(substrate, "create");
    await begun;
    const sweep = async (): Promise<SweepReport> => {
      const [report = ""] = (await new NodeProcess(substrate, "sweep").outcome()).split("\n");
      return JSON.parse(report) as SweepReport;
    };
    assert.deepEqual(await sweep(), SWEPT_NOTHING);
    assert.deepEqual(substrate.left(), ["volume made-credentials"]);
    await first.kill();
    release();
    await done;
    assert.deepEqual(await sweep(), { ...SWEPT_NOTHING, removed: ["made"] });
    assert.deepEqual(substrate.left(), []);
  });

  test("the watch does not report a sandbox that another process locked", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate), { lockTimeoutMs: 1 });
    // The watch would remove it at once, before the standby has recorded that it sleeps.
    await node.create({ image: IMAGE, name: "box", ttlMs: 1 });
    const events: WatchEvent[] = [];
    const end = new AbortController();
    const { begun, release } = substrate.hold("GET /capabilities");
    const other = new NodeProcess(substrate, "standby");
    await begun;
    const { promise: removed, resolve: remove } = Promise.withResolvers<void>();
    const watching = node.watch({
      intervalMs: 10,
      signal: end.signal,
      onEvent: (event) => {
        events.push(event);
        if (event.name === "goes") remove();
      },
    });
    await node.create({ image: IMAGE, name: "goes", ttlMs: 1 });
    await removed;
    release();
    assert.equal(await other.outcome(), "done");
    end.abort();
    await watching;
    const told = events.map(({ name, event }) => `${name} ${event}`);
    assert.deepEqual(told, ["goes remove"]);
  });
});

describe("the last two sandboxes that share a volume", NEEDS_NAMESPACES, () => {
  it("a volume is deleted if its last two sandboxes are removed concurrently", async ({ node, substrate }) => {
    await node.fork("box", { name: "twin" });
    const { promise: both, resolve } = Promise.withResolvers<void>();
    let removals = 0;
    substrate.interfere = async (request, when) => {
      if (request !== "DELETE /instances/{id}" || when !== "after") return undefined;
      if (++removals === 2) resolve();
      await both;
      return undefined;
    };
    await Promise.all([node.remove("box"), node.remove("twin")]);
    assert.deepEqual(substrate.left(), []);
  });
});
