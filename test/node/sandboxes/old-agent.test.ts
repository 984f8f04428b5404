import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { demandAgent } from "../../../src/node/sandboxes/node/agent-version.ts";
import type { SandboxError } from "../../../src/node/sandboxes/substrate/errors.ts";
import type { JournalEntry } from "../../../src/node/sandboxes/node/journal.ts";
import { AGENT_VERSION } from "../../../src/shared/version.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { failureOf, openNode, partsOf, SPEC } from "./node.ts";
import { HttpSubstrate } from "./substrate.ts";

test("versions are compared as semver.org 11 has them; an unknown one is too old for any", () => {
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
    const ask = (): void => demandAgent(entry, least);
    if (isEnough) ask();
    else assert.throws(ask, ({ code }: SandboxError) => code === "AGENT_TOO_OLD", `${has} for ${least}`);
  }
});

describe("the agent in a sandbox", NEEDS_NAMESPACES, () => {
  test("is on record with its version, build and services, also in snapshots and forks", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    const made = await node.create(SPEC);
    const { snapshot } = await node.snapshot("box", { name: "taken" });
    const { sandbox } = await node.fork("taken", { name: "twin", minAgentVersion: AGENT_VERSION });
    for (const each of [made, snapshot, sandbox]) {
      assert.equal(each.agentVersion, AGENT_VERSION);
      assert.match(each.agentVolumeId, /^guest-agent-[0-9a-f]{16}$/);
      const services = ["GuestAgent", "FileTree", "Tunnel"].map((name) => `svc.guest.v1alpha1.${name}`);
      assert.deepEqual(
        services.filter((name) => each.agentServices?.includes(name) !== true),
        [],
      );
    }
  });

  test("is refused where it is older than minAgentVersion, before anything wakes up, with what to do", async () => {
    await using substrate = await HttpSubstrate.start();
    const program = join(import.meta.dirname, "stand-in-agent.ts");
    const archive = substrate.agentOf("other", `exec '${process.execPath}' '${program}'`);
    using node = await openNode(partsOf(substrate), { agent: { archive } });
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
      const { code, message, nextStep } = await failureOf(refused);
      assert.equal(code, "AGENT_TOO_OLD");
      assert.match(message, /has the agent 0\.1\.0, and 0\.2\.0 or later is asked for; nothing woke up$/);
      assert.match(nextStep ?? "", /^create a new sandbox, which gets the agent of this node/);
    }
    const changes = substrate.requests.slice(before).filter((request) => !request.startsWith("GET "));
    assert.deepEqual([changes, (await node.get("box")).state], [[], "Standby"]);
    assert.equal((await failureOf(node.resume("box", { minAgentVersion: "new" }))).code, "INVALID_SPEC");
    await node.resume("box", { minAgentVersion: "0.1.0" });
  });
});
