import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { openNode, partsOf, SPEC, warningsOf } from "./node.ts";
import { HttpSubstrate, MISSING } from "./substrate.ts";

describe("a daemon without /capabilities, which came after API 0.3.0", NEEDS_NAMESPACES, () => {
  test("does all the same: its hypervisor is that of its instances", async () => {
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
    assert.deepEqual(
      warningsOf(awakening).map(({ code }) => code),
      ["DUTIES_DEGRADED"],
    );
    substrate.fail("GET /capabilities", MISSING);
    await node.snapshot("box", { name: "taken" });
    await node.fork("taken", { name: "twin" });
    const { daemonVersion, hypervisors } = await node.status();
    assert.deepEqual([daemonVersion, hypervisors], ["unknown", {}]);
    for (const name of ["box", "taken", "twin"]) await node.remove(name);
    assert.deepEqual(substrate.left(), []);
  });
});
