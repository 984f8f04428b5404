import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { until } from "../../fixtures/awake.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { failureOf, openNode, partsOf, SPEC, traces } from "./node.ts";
import { HttpSubstrate } from "./substrate.ts";

/** Ends an instance as soon as it is back, with last words on its console. */
function endAfter(substrate: HttpSubstrate, wanted: string, name: string): void {
  substrate.interfere = async (request, when) => {
    if (request !== wanted || when !== "after") return undefined;
    const process = substrate.machine(name);
    process.say("guest-agent: last words\n");
    await process.kill();
    return undefined;
  };
}

test(
  "a sandbox whose workload has ended says how, in get and in the error of the next call, whatever its console said after",
  NEEDS_NAMESPACES,
  async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    const process = { args: ["sh", "-c", "until test -e /run/go; do sleep 0.05; done; exit 7"] };
    await node.create({ ...SPEC, process });
    assert.equal((await node.get("box")).endedBecause, undefined);
    const machine = substrate.machine("box");
    machine.touch("/run/go");
    await until(() => machine.console.includes("agent_ended"), "the agent's last line");
    machine.say("init says more\n".repeat(200));
    await until(async () => (await node.get("box")).state === "Stopped", "it is off");
    assert.equal((await node.get("box")).endedBecause, "the workload exited with status 7");
    const { code, message } = await failureOf(node.connect("box"));
    assert.deepEqual([code, message], ["WRONG_STATE", "box is stopped (Stopped): the workload exited with status 7"]);
  },
);

// An agent has five minutes to answer here: without a look at the instance each test would take that long.
describe("an agent that ends right after it is back", NEEDS_NAMESPACES, () => {
  test("by a resume: AGENT_ENDED with the console's last lines, and the sandbox can be started anew", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    await node.standby("box");
    endAfter(substrate, "POST /instances/{id}/restore", "box");
    const { code, message, consoleTail } = await failureOf(node.resume("box"));
    assert.equal(code, "AGENT_ENDED");
    assert.match(message, /the agent of box ended before it answered/);
    assert.equal(consoleTail.at(-1), "guest-agent: last words");
    assert.match((await failureOf(node.connect("box"))).nextStep ?? "", /^boot it anew: sandboxes\.resume\("box"\)$/);
    substrate.interfere = () => undefined;
    await node.resume("box");
    using client = await node.connect("box");
    assert.equal((await client.run({ args: ["true"] })).exitCode, 0);
  });

  for (const [what, request] of [
    ["box", "POST /instances/{id}/fork"],
    ["taken", "POST /snapshots/{id}/fork"],
  ] as const) {
    test(`by a fork of ${what}: AGENT_ENDED with the fork's console, taken before the fork was removed`, async () => {
      await using substrate = await HttpSubstrate.start();
      using node = await openNode(partsOf(substrate));
      await node.create(SPEC);
      await node.snapshot("box", { name: "taken" });
      endAfter(substrate, request, "twin");
      const { code, message, consoleTail } = await failureOf(node.fork(what, { name: "twin" }));
      assert.equal(code, "AGENT_ENDED");
      assert.match(message, /the agent of twin ended before it answered/);
      assert.equal(consoleTail.at(-1), "guest-agent: last words");
      assert.deepEqual(substrate.left(), ["instance box", "snapshot taken", "volume box-credentials"]);
      assert.deepEqual((await traces(node, substrate.stateFolder)).slice(0, 2), ["box ready", "taken ready"]);
      using client = await node.connect("box");
      assert.equal((await client.run({ args: ["true"] })).exitCode, 0);
    });
  }
});
