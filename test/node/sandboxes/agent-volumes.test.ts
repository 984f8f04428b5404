import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { Sandboxes } from "../../../src/node/sandboxes/index.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { CREATE, openNode, partsOf } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

const DELETE_VOLUME = "DELETE /volumes/{id}";

/** The agent's archive with another content, as of another release. */
async function release(substrate: HttpSubstrate, version: string): Promise<{ readonly archive: string }> {
  const folder = join(substrate.stateFolder, `../release-${version}`);
  await mkdir(folder, { recursive: true });
  execFileSync("tar", ["-xzf", substrate.agentArchive, "-C", folder]);
  await writeFile(join(folder, "guest-agent-test/version"), version);
  const archive = join(folder, "guest-agent.tar.gz");
  execFileSync("tar", ["-czf", archive, "-C", folder, "guest-agent-test"]);
  return { archive };
}

/** A node with the older agent, one with the newer, and the id of the older agent's volume. */
async function twoReleases(substrate: HttpSubstrate): Promise<{
  readonly older: Sandboxes;
  readonly newer: Sandboxes;
  readonly oldVolume: string;
  readonly [Symbol.dispose]: () => void;
}> {
  const older = await openNode(partsOf(substrate), { agent: await release(substrate, "1") });
  await older.create({ image: IMAGE, name: "old" });
  const [oldVolume = ""] = agents(substrate);
  // Made long ago: two volumes of one millisecond would have no order.
  Object.assign(substrate.volumes.get(oldVolume), { created_at: new Date(0).toISOString() });
  const folder = join(substrate.stateFolder, "../newer-state");
  const newer = await openNode(partsOf(substrate), { folder, nodeId: "node-2", agent: await release(substrate, "2") });
  await newer.create({ image: IMAGE, name: "new" });
  assert.equal(agents(substrate).length, 2);
  const dispose = (): void => {
    older.close();
    newer.close();
  };
  return { older, newer, oldVolume, [Symbol.dispose]: dispose };
}

/** Ids of the volumes of agents. */
function agents({ volumes }: HttpSubstrate): string[] {
  return volumes.list({ "svc.agent": "true" }).map(({ id }) => id);
}

describe("the volume of an older agent", NEEDS_NAMESPACES, () => {
  test("stays as long as anything needs it: a sandbox, a fork without its origin, a sleeper, a snapshot; then a sweep removes it", async () => {
    await using substrate = await HttpSubstrate.start();
    using nodes = await twoReleases(substrate);
    const { older, newer, oldVolume } = nodes;
    const stays = async (): Promise<void> => {
      assert.deepEqual((await newer.sweep()).orphans, []);
      assert.ok(substrate.volumes.has(oldVolume));
    };
    await stays();
    await older.fork("old", { name: "twin" });
    await older.remove("old");
    await stays();
    await older.standby("twin");
    await stays();
    await older.resume("twin");
    await older.snapshot("twin", { name: "taken" });
    await older.remove("twin");
    await stays();
    // Forks are what the volume is kept for.
    await older.fork("taken", { name: "late" });
    await older.remove("late");
    await older.remove("taken");
    assert.deepEqual((await newer.sweep()).orphans, [oldVolume]);
    assert.ok(!substrate.volumes.has(oldVolume));
    assert.deepEqual((await newer.sweep()).orphans, []);
    assert.equal(agents(substrate).length, 1, "its own stays");
  });

  test("is removed by no node that has an older one, or none", async () => {
    await using substrate = await HttpSubstrate.start();
    using nodes = await twoReleases(substrate);
    const { older, newer, oldVolume } = nodes;
    await newer.remove("new");
    assert.deepEqual((await older.sweep()).orphans, [], "the newer one");
    await older.remove("old");
    using none = await openNode(partsOf(substrate), {
      folder: join(substrate.stateFolder, "../third-state"),
      nodeId: "node-3",
      agent: undefined,
    });
    assert.deepEqual((await none.sweep()).orphans, []);
    assert.ok(substrate.volumes.has(oldVolume));
  });

  test("that is removed just before a sandbox is made of it is made anew, and the sandbox too", async () => {
    await using substrate = await HttpSubstrate.start();
    using nodes = await twoReleases(substrate);
    const { older, newer, oldVolume } = nodes;
    await older.remove("old");
    // The sweep looks; then the other node provides the volume and asks for the instance; then the volume is removed.
    const { promise: looked, resolve: look } = Promise.withResolvers<void>();
    const { promise: asked, resolve: ask } = Promise.withResolvers<void>();
    const { promise: removed, resolve: remove } = Promise.withResolvers<void>();
    let creations = 0;
    substrate.interfere = async (request, when) => {
      if (request === DELETE_VOLUME && when === "before") {
        look();
        await asked;
      }
      if (request === DELETE_VOLUME && when === "after") remove();
      if (request === CREATE && when === "before" && creations++ === 0) {
        ask();
        await removed;
      }
      return undefined;
    };
    const sweeping = newer.sweep();
    await looked;
    const { state } = await older.create({ image: IMAGE, name: "again" });
    assert.deepEqual((await sweeping).orphans, [oldVolume]);
    assert.deepEqual([state, creations, substrate.volumes.has(oldVolume)], ["Running", 2, true]);
    assert.deepEqual((await newer.sweep()).orphans, []);
    using client = await older.connect("again");
    assert.equal((await client.run({ args: ["true"] })).exitCode, 0);
  });

  test("is not removed once the sandbox is there, although the sweep had looked before", async () => {
    await using substrate = await HttpSubstrate.start();
    using nodes = await twoReleases(substrate);
    const { older, newer, oldVolume } = nodes;
    await older.remove("old");
    const held = substrate.hold(DELETE_VOLUME);
    const sweeping = newer.sweep();
    await held.begun;
    await older.create({ image: IMAGE, name: "again" });
    held.release();
    const { orphans, failed } = await sweeping;
    assert.deepEqual([orphans, failed, substrate.volumes.has(oldVolume)], [[], [], true]);
  });
});
