import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { codeOf, failureOf, openNode, partsOf, SPEC } from "./node.ts";
import { HttpSubstrate, INTERNAL } from "./substrate.ts";

describe("a fork whose random numbers its origin may draw, too", NEEDS_NAMESPACES, () => {
  test("is not handed out, and leaves nothing: RESTORE_DEGRADED; unless that is accepted", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    await node.snapshot("box", { name: "taken" });
    substrate.machines.forksCannotReseed = true;
    for (const from of ["box", "taken"]) {
      const { code, message, nextStep } = await failureOf(node.fork(from, { name: "twin" }));
      assert.equal(code, "RESTORE_DEGRADED");
      assert.match(message, /twin may draw its origin's random numbers: .*crng_reseed:/);
      assert.doesNotMatch(message, /clock_|entropy_credit/);
      assert.match(nextStep ?? "", /acceptDegraded/);
      assert.deepEqual(substrate.left(), ["instance box", "snapshot taken", "volume box-credentials"]);
      using client = await node.connect("box");
      assert.equal((await client.health()).alive, true);
    }
    const { awakening } = await node.fork("taken", { name: "twin", acceptDegraded: true });
    assert.match(awakening.notReseeded.join(" "), /crng_reseed:/);
    assert.ok(awakening.warnings.some(({ code }) => code === "DUTIES_DEGRADED"));
    for (const name of ["box", "taken", "twin"]) await node.remove(name);
  });
});

describe("a hypervisor that gives forks the vsock number of their origin, as QEMU", NEEDS_NAMESPACES, () => {
  test("runs two with one number one after the other; beside each other SIBLING_RUNNING names the one that is in the way", async () => {
    await using substrate = await HttpSubstrate.start();
    substrate.rules.forks = "qemu";
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    await node.snapshot("box", { name: "taken" });
    const { code, message, nextStep } = await failureOf(node.fork("taken", { name: "one" }));
    assert.equal(code, "SIBLING_RUNNING");
    assert.match(
      message,
      /one could not be started beside box, which has the same origin: .*500 internal_error: failed/,
    );
    assert.match(nextStep ?? "", /put box to sleep/);
    assert.deepEqual(substrate.left(), ["instance box", "snapshot taken", "volume box-credentials"]);
    await node.standby("box");
    substrate.fail("POST /snapshots/{id}/fork", INTERNAL);
    assert.equal(await codeOf(node.fork("taken", { name: "one" })), "SUBSTRATE_FAILED", "no sibling runs");
    substrate.interfere = () => undefined;
    for (const name of ["one", "two"]) {
      await node.fork("taken", { name });
      if (name === "one") assert.equal(await codeOf(node.resume("box")), "SIBLING_RUNNING");
      await node.remove(name);
    }
    await node.resume("box");
    await node.fork("box", { name: "three" });
    // That fork has kept the number, and its source another.
    assert.match(
      (await failureOf(node.fork("taken", { name: "four" }))).message,
      /four could not .* beside three, which/,
    );
    await node.standby("three");
    await node.fork("taken", { name: "four" });
    for (const name of ["box", "taken", "three", "four"]) await node.remove(name);
    assert.deepEqual(substrate.left(), []);
  });
});
