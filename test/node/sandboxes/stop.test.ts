import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { until } from "../../fixtures/awake.ts";
import { openNode, partsOf } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

const STOP = "POST /instances/{id}/stop";
/** A workload that cleans up for as long as it is allowed to. */
const CLEANS_UP = {
  args: [
    "sh",
    "-c",
    "trap 'echo cleaning; until test -e /run/go; do sleep 0.02; done; echo clean; exit' TERM; echo up; while :; do sleep 0.05; done",
  ],
  stop_grace_ms: 300_000,
};

describe("a stop", NEEDS_NAMESPACES, () => {
  test("lets the workload clean up for as long as its own grace, which the substrate's stop would cut", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create({ image: IMAGE, name: "box", process: CLEANS_UP });
    const process = substrate.machine("box");
    await until(() => /^up$/m.test(process.console), "the workload is up");
    let isOver = false;
    const stopping = node.stop("box").finally(() => (isOver = true));
    await until(() => /^cleaning$/m.test(process.console), "it cleans up");
    const looks = substrate.requests.length;
    await until(() => substrate.requests.length > looks + 2, "the node goes on waiting");
    assert.ok(!isOver);
    process.touch("/run/go");
    assert.deepEqual(await stopping, { warnings: [] });
    assert.match(process.console, /^clean$/m);
    assert.equal((await node.get("box")).state, "Stopped");
    assert.ok(!substrate.requests.includes(STOP));
    assert.equal(await node.resume("box"), undefined);
    assert.equal((await node.get("box")).state, "Running");
  });

  for (const [what, word, code, message] of [
    [
      "of an agent that cannot be asked",
      "",
      "STOP_BOUNDED",
      /older than 0\.2\.0, which brought Stop; .* kills after 5 s/,
    ],
    ["of an agent that takes it and does not end", "stop", "STOP_FORCED", /100 ms and 5000 ms more to end/],
  ] as const) {
    test(`${what} is the substrate's, with a warning: ${code}`, async () => {
      await using substrate = await HttpSubstrate.start();
      const program = join(import.meta.dirname, "stand-in-agent.ts");
      const archive = substrate.agentOf("other", `exec '${process.execPath}' '${program}' ${word}`);
      using node = await openNode(partsOf(substrate), { agent: { archive } });
      await node.create({ image: IMAGE, name: "box" });
      const { warnings } = await node.stop("box");
      assert.deepEqual(
        warnings.map((warning) => warning.code),
        [code],
      );
      assert.match(warnings[0]?.message ?? "", message);
      assert.equal(substrate.requests.filter((request) => request === STOP).length, 1);
      assert.equal((await node.get("box")).state, "Stopped");
    });
  }
});
