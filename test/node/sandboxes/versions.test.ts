import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { Sandboxes } from "../../../src/node/sandboxes/index.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import {
  assertAnswers,
  assertRefused,
  CREATE,
  failureOf,
  openNode,
  partsOf,
  SPEC,
  standInAgent,
  warningsOf,
} from "./node.ts";
import { HttpSubstrate, IMAGE, MISSING } from "./substrate.ts";
import { planText } from "../../../src/node/guestctl/sandbox/report.ts";
import { requireAgent } from "../../../src/node/sandboxes/state/requirements.ts";
import type { SandboxError } from "../../../src/node/sandboxes/substrate/errors.ts";
import type { JournalEntry } from "../../../src/node/sandboxes/state/journal.ts";
import { AGENT_VERSION } from "../../../src/shared/version.ts";

const DELETE_VOLUME = "DELETE /volumes/{id}";

/** The agent's archive with another content, as of another release. */
async function release(substrate: HttpSubstrate, version: string): Promise<{ readonly archive: string }> {
  const directory = join(substrate.stateDirectory, `../release-${version}`);
  await mkdir(directory, { recursive: true });
  execFileSync("tar", ["-xzf", substrate.agentArchive, "-C", directory]);
  await writeFile(join(directory, "guest-agent-test/version"), version);
  const archive = join(directory, "guest-agent.tar.gz");
  execFileSync("tar", ["-czf", archive, "-C", directory, "guest-agent-test"]);
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
  const directory = join(substrate.stateDirectory, "../newer-state");
  const newer = await openNode(partsOf(substrate), {
    stateDirectory: directory,
    nodeId: "node-2",
    agent: await release(substrate, "2"),
  });
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
  test("`sweep` removes an old agent's volume when no sandbox or snapshot uses it", async () => {
    await using substrate = await HttpSubstrate.start();
    using nodes = await twoReleases(substrate);
    const { older, newer, oldVolume } = nodes;
    const stays = async (): Promise<void> => {
      assert.deepEqual((await newer.sweepPlan()).orphans, []);
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
    const plan = await newer.sweepPlan();
    assert.deepEqual(plan.orphans, [{ kind: "agent volume", name: oldVolume, id: oldVolume }]);
    assert.match(
      planText(plan),
      /^agent volume \S+: a sweep would remove it, because nothing uses this older agent\n$/,
    );
    assert.deepEqual((await newer.sweep()).orphans, [oldVolume]);
    assert.ok(!substrate.volumes.has(oldVolume));
    assert.deepEqual((await newer.sweep()).orphans, []);
    assert.equal(agents(substrate).length, 1, "its own stays");
  });

  test("`sweep` keeps agent volumes if the node's agent is older or absent", async () => {
    await using substrate = await HttpSubstrate.start();
    using nodes = await twoReleases(substrate);
    const { older, newer, oldVolume } = nodes;
    await newer.remove("new");
    assert.deepEqual((await older.sweep()).orphans, [], "the newer one");
    await older.remove("old");
    using none = await openNode(partsOf(substrate), {
      stateDirectory: join(substrate.stateDirectory, "../third-state"),
      nodeId: "node-3",
      agent: undefined,
    });
    assert.deepEqual((await none.sweep()).orphans, []);
    assert.ok(substrate.volumes.has(oldVolume));
  });

  test("`create` retries if a sweep removes the agent's volume during the creation", async () => {
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
    await assertAnswers(older, "again");
  });

  test("`sweep` keeps an old agent volume that `create` mounts during the sweep", async () => {
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

test("agent versions are compared as semver; an unknown version is too old", () => {
  for (const [has, least, isEnough] of [
    ["0.2.0", "0.2.0", true],
    ["0.10.0", "0.9.9", true],
    ["1.0.0", "0.99.99", true],
    ["0.2.9", "0.3.0", false],
    ["0.3.0-rc.1", "0.3.0", false],
    ["0.3.0", "0.3.0-rc.1", true],
    ["", "0.0.1", false],
    ["nonsense", "0.0.1", false],
  ] as const) {
    const entry = { name: "box", agentVersion: has } as JournalEntry;
    const ask = (): void => requireAgent(entry, least);
    if (isEnough) ask();
    else assert.throws(ask, ({ code }: SandboxError) => code === "AGENT_TOO_OLD", `${has} for ${least}`);
  }
});

describe("the agent in a sandbox", NEEDS_NAMESPACES, () => {
  test("sandboxes, snapshots and forks record their agent's version and services", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    const made = await node.create(SPEC);
    const { snapshot } = await node.snapshot("box", { name: "taken" });
    const { sandbox } = await node.fork("taken", { name: "twin", minAgentVersion: AGENT_VERSION });
    for (const each of [made, snapshot, sandbox]) {
      assert.equal(each.agentVersion, AGENT_VERSION);
      assert.match(each.agentVolumeId, /^guest-agent-[0-9a-f]{16}$/);
      const services = ["GuestAgent", "FileTree", "Tunnel"].map((name) => `svc.guest.v1alpha1.${name}`);
      const missing = services.filter((name) => each.agentServices?.includes(name) !== true);
      assert.deepEqual(missing, []);
    }
  });

  test("an agent older than minAgentVersion fails with AGENT_TOO_OLD before anything is resumed", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate), { agent: standInAgent(substrate) });
    await node.create(SPEC);
    const { snapshot } = await node.snapshot("box", { name: "taken" });
    assert.deepEqual([snapshot.agentVersion, snapshot.agentServices], ["0.1.0", []]);
    await node.standby("box");
    const before = substrate.requests.length;
    const least = { minAgentVersion: "0.2.0" };
    for (const refused of [
      node.resume("box", least),
      node.fork("box", { ...least, name: "twin" }),
      node.fork("taken", { ...least, name: "twin" }),
    ]) {
      const { message, nextStep } = await assertRefused(refused, "AGENT_TOO_OLD");
      assert.match(message, /has the agent 0\.1\.0, but 0\.2\.0 or later is required; it was not resumed$/);
      assert.match(nextStep ?? "", /^create a new sandbox, which gets this node's agent/);
    }
    const changes = substrate.requests.slice(before).filter((request) => !request.startsWith("GET "));
    assert.deepEqual([changes, (await node.get("box")).state], [[], "Standby"]);
    assert.equal((await failureOf(node.resume("box", { minAgentVersion: "new" }))).code, "INVALID_SPEC");
    await node.resume("box", { minAgentVersion: "0.1.0" });
  });
});

describe("a daemon without /capabilities, which came after API 0.3.0", NEEDS_NAMESPACES, () => {
  test("sandboxes work with a daemon that lacks the endpoint /capabilities", async () => {
    await using substrate = await HttpSubstrate.start();
    substrate.fail("GET /capabilities", MISSING);
    using node = await openNode(partsOf(substrate));
    const { hypervisor } = await node.create(SPEC);
    assert.equal(hypervisor, "qemu");
    await node.standby("box");
    assert.match((await node.get("box")).keys.bundle, /^qemu unknown \d/);
    // An update brings them while the sandbox sleeps.
    substrate.interfere = () => undefined;
    const awakening = await node.resume("box");
    const codes = warningsOf(awakening).map(({ code }) => code);
    assert.deepEqual(codes, ["DUTIES_DEGRADED"]);
    substrate.fail("GET /capabilities", MISSING);
    await node.snapshot("box", { name: "taken" });
    await node.fork("taken", { name: "twin" });
    const { daemonVersion, hypervisors } = await node.status();
    assert.deepEqual([daemonVersion, hypervisors], ["unknown", {}]);
    for (const name of ["box", "taken", "twin"]) await node.remove(name);
    assert.deepEqual(substrate.left(), []);
  });
});
