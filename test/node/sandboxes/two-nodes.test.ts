import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { Step } from "../../../src/node/sandboxes/index.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { assertAnswers, assertRefused, codeOf, CREATE, it, openNode, partsOf, SPEC, traces } from "./node.ts";
import { HttpSubstrate, INTERNAL } from "./substrate.ts";

describe("two nodes", NEEDS_NAMESPACES, () => {
  test("two nodes cannot create sandboxes with the same name", async () => {
    await using substrate = await HttpSubstrate.start();
    using first = await openNode(partsOf(substrate));
    const directory = join(substrate.stateDirectory, "../second-state");
    const deleted: string[] = [];
    const onStep = ({ name, step }: Step): void => {
      if (name === "box" && step.startsWith("delete the ")) deleted.push(step);
    };
    using second = await openNode(partsOf(substrate), { stateDirectory: directory, nodeId: "node-2", onStep });
    let hasVolume = true;
    substrate.interfere = async (request, when) => {
      // Once while the first node has made its volume and nothing that uses and once when all of it is there.
      if (request !== CREATE || when !== "before" || !hasVolume) return undefined;
      hasVolume = false;
      assert.equal(await codeOf(second.create(SPEC)), "ALREADY_EXISTS");
      return undefined;
    };
    await first.create(SPEC);
    assert.ok(!hasVolume);
    // A fork has its origin's volume: here of the instance whose name is taken.
    await first.fork("box", { name: "twin" });
    for (const name of ["box", "twin"]) {
      await assertRefused(second.create({ ...SPEC, name }), "ALREADY_EXISTS", /(?:)/, /another node/);
      await assertAnswers(first, name);
    }
    assert.deepEqual(substrate.left(), ["instance box", "instance twin", "volume box-credentials"]);
    assert.deepEqual(await traces(second, directory), []);
    assert.deepEqual(
      [...new Set(deleted)],
      ["delete the credentials"],
      "it announces no deletion of what the other has",
    );
  });

  it("operations on another node's sandbox fail and name that node", async ({ substrate }) => {
    const directory = join(substrate.stateDirectory, "../second-state");
    using second = await openNode(partsOf(substrate), { stateDirectory: directory, nodeId: "node-2" });
    for (const operation of [
      () => second.get("box"),
      () => second.reach("box"),
      () => second.standby("box"),
      () => second.resume("box"),
      () => second.stop("box"),
      () => second.snapshot("box"),
      () => second.fork("box"),
      () => second.publish("box", 3000, "web.example.com"),
      () => second.unpublish("box", "web.example.com"),
      () => second.remove("box"),
    ])
      await assertRefused(
        operation(),
        "NOT_FOUND",
        /; the node node-1 has a sandbox of that name$/,
        /^make the call on that node/,
      );
    await assertRefused(
      second.remove("none"),
      "NOT_FOUND",
      /^there is no sandbox or snapshot "none" in the journal of /,
    );
  });

  it("nodes with the same id do not sweep each other's sandboxes without `takeOver`", async ({
    node: first,
    substrate,
  }) => {
    using second = await openNode(partsOf(substrate), {
      stateDirectory: join(substrate.stateDirectory, "../second-state"),
    });
    await assertRefused(second.sweep(), "NODE_ID_CONFLICT", /node-1/, /takeOver/);
    using third = await openNode(partsOf(substrate), {
      stateDirectory: join(substrate.stateDirectory, "../third-state"),
      nodeId: "node-2",
    });
    assert.deepEqual((await third.sweep()).orphans, []);
    assert.deepEqual(substrate.left(), ["instance box", "volume box-credentials"]);
    // A listing without a state lacks what sleeps.
    await first.standby("box");
    const { orphans } = await second.sweep({ takeOver: true });
    assert.deepEqual(orphans, ["box", "box-credentials"]);
    assert.deepEqual(substrate.left(), []);
    assert.deepEqual((await first.sweep()).removed, ["box"], "the first knows that its sandbox is gone");
  });

  it("a failed `create` does not adopt a same-named sandbox of another node", async ({ substrate }) => {
    const directory = join(substrate.stateDirectory, "../second-state");
    using second = await openNode(partsOf(substrate), { stateDirectory: directory, nodeId: "node-2" });
    substrate.fail(CREATE, INTERNAL);
    substrate.volumes.remove(substrate.volumes.get("box-credentials"));
    assert.equal(await codeOf(second.create(SPEC)), "SUBSTRATE_FAILED");
    const owners = substrate.instances.list({}).map(({ tags }) => tags["svc.node_id"]);
    assert.deepEqual(owners, ["node-1"]);
    assert.deepEqual(await traces(second, directory), []);
  });
});
