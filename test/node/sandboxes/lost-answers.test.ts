import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { CREATE, openNode, partsOf, SPEC } from "./node.ts";
import { HttpSubstrate, INTERNAL } from "./substrate.ts";

describe("a sandbox that is made all the same", NEEDS_NAMESPACES, () => {
  test("was found by its name: the answer to its creation was lost", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    let cuts = 0;
    substrate.interfere = (request, when) =>
      request === CREATE && when === "after" && cuts++ === 0 ? "cut" : undefined;
    const { state, instanceId } = await node.create(SPEC);
    assert.deepEqual([state, instanceId], ["Running", substrate.instances.get("box").id]);
    assert.equal(substrate.requests.filter((request) => request === CREATE).length, 1, "it was asked for once");
    // The same for what changes it.
    const lost: string[] = [];
    substrate.interfere = (request, when) => {
      if (request.startsWith("GET") || when === "before") return undefined;
      lost.push(request);
      return "cut";
    };
    await node.standby("box");
    await node.resume("box");
    await node.snapshot("box", { name: "taken" });
    await node.fork("taken", { name: "forked" });
    for (const name of ["box", "taken", "forked"]) await node.remove(name);
    assert.equal(lost.length, new Set(lost).size + 1, `only an instance was deleted twice: ${lost.join(", ")}`);
    assert.deepEqual(substrate.left(), []);
  });

  test("is found asleep or awake all the same where the daemon cancels its own call, at 60 s, and answers 500", async () => {
    // hypeman 8853445, cmd/api/main.go:523: the outcome is as unknown as that of a lost answer.
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    substrate.fail(/^POST \/(?!volumes)/, INTERNAL, "after");
    assert.equal((await node.create(SPEC)).state, "Running");
    await node.standby("box");
    await node.resume("box");
    await node.snapshot("box", { name: "taken" });
    await node.fork("taken", { name: "one" });
    await node.fork("box", { name: "two" });
    await node.stop("two");
    assert.deepEqual((await node.list()).map(({ name, state }) => `${name} ${state}`).toSorted(), [
      "box Running",
      "one Running",
      "two Stopped",
    ]);
    const calls = ["standby", "restore", "snapshots"].map((word) => `POST /instances/{id}/${word}`);
    for (const call of [CREATE, ...calls])
      assert.equal(substrate.requests.filter((each) => each === call).length, 1, call);
    for (const name of ["box", "taken", "one", "two"]) await node.remove(name);
    assert.deepEqual(substrate.left(), []);
  });

  test("is left alone by a sweep that goes on beside its creation", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    const sweeps: unknown[] = [];
    substrate.interfere = async (request, when) => {
      if (when === "after" && request.startsWith("POST")) sweeps.push(await node.sweep());
      return undefined;
    };
    await node.create(SPEC);
    const nothing = { removed: [], orphans: [], awakened: [], completed: [], failed: [] };
    assert.deepEqual(sweeps, [nothing, nothing, nothing]);
    using client = await node.connect("box");
    assert.equal((await client.health()).alive, true);
    await node.remove("box");
  });
});
