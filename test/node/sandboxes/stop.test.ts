import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { until } from "../../fixtures/awake.ts";
import { assertAnswers, assertRefused, failureOf, it, openNode, partsOf, SPEC, standInAgent, traces } from "./node.ts";
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

describe("stop", NEEDS_NAMESPACES, () => {
  test("`stop` waits for a grace period longer than the daemon's own limit", async () => {
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
      "an agent without Stop",
      "",
      "STOP_BOUNDED",
      /older than 0\.2\.0, the first version with Stop; .* gave the workload only 5 s to end/,
    ],
    ["an agent that accepts Stop and does not end", "stop", "STOP_FORCED", /5000 ms after the grace period of 100 ms/],
  ] as const) {
    test(`stop warns ${code} and uses the daemon's stop for ${what}`, async () => {
      await using substrate = await HttpSubstrate.start();
      using node = await openNode(partsOf(substrate), { agent: standInAgent(substrate, word) });
      await node.create({ image: IMAGE, name: "box" });
      const { warnings } = await node.stop("box");
      const [warning, ...others] = warnings;
      assert.deepEqual([warning?.code, others], [code, []]);
      assert.match(warning?.message ?? "", message);
      assert.equal(substrate.requests.filter((request) => request === STOP).length, 1);
      assert.equal((await node.get("box")).state, "Stopped");
    });
  }
});

/** Ends an instance as soon as it is back, with last words on its console. */
function endAfter(substrate: HttpSubstrate, wanted: string, name: string): void {
  substrate.interfere = async (request, when) => {
    if (request !== wanted || when !== "after") return undefined;
    const process = substrate.machine(name);
    // A living agent could still write after them.
    await process.kill();
    process.say("guest-agent: last words\n");
    return undefined;
  };
}

test("`get` and a failing `connect` say how a sandbox's workload ended", NEEDS_NAMESPACES, async () => {
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
});

// An agent has five minutes to answer here: without a look at the instance each test would take that long.
describe("an agent that ends right after it was restored", NEEDS_NAMESPACES, () => {
  it("if the agent exits, `resume` fails with AGENT_ENDED, and the sandbox can boot again", async (place) => {
    const { node, substrate } = place;
    await node.standby("box");
    endAfter(substrate, "POST /instances/{id}/restore", "box");
    const { consoleTail, message } = await assertRefused(node.resume("box"), "AGENT_ENDED");
    assert.match(message, /the agent of box ended before it answered/);
    assert.equal(consoleTail.at(-1), "guest-agent: last words");
    assert.match((await failureOf(node.connect("box"))).nextStep ?? "", /^boot it again: sandboxes\.resume\("box"\)$/);
    substrate.interfere = () => undefined;
    await node.resume("box");
    await assertAnswers(node, "box");
  });

  for (const [what, request] of [
    ["box", "POST /instances/{id}/fork"],
    ["taken", "POST /snapshots/{id}/fork"],
  ] as const) {
    it(`a fork of ${what} fails with AGENT_ENDED and the fork's console`, async (place) => {
      const { node, substrate } = place;
      await node.snapshot("box", { name: "taken" });
      endAfter(substrate, request, "twin");
      const { consoleTail, message } = await assertRefused(node.fork(what, { name: "twin" }), "AGENT_ENDED");
      assert.match(message, /the agent of twin ended before it answered/);
      assert.equal(consoleTail.at(-1), "guest-agent: last words");
      assert.deepEqual(substrate.left(), ["instance box", "snapshot taken", "volume box-credentials"]);
      assert.deepEqual((await traces(node, substrate.stateDirectory)).slice(0, 2), ["box ready", "taken ready"]);
      await assertAnswers(node, "box");
    });
  }
});

const PANIC = "[    9.000000] Kernel panic - not syncing: Fatal exception in interrupt";

// As above: an agent has five minutes to answer.
describe("a guest whose kernel panics right after it was restored", NEEDS_NAMESPACES, () => {
  for (const [verb, request, name] of [
    ["resume", "POST /instances/{id}/restore", "box"],
    ["fork", "POST /snapshots/{id}/fork", "twin"],
  ] as const) {
    it(`${verb} fails early with AGENT_UNREACHABLE if the kernel panics after the restore`, async ({
      node,
      substrate,
    }) => {
      await node.snapshot("box", { name: "taken" });
      await node.standby("box");
      substrate.interfere = async (asked, when) => {
        if (asked === request && when === "after") substrate.machine(name).panic(PANIC);
        return undefined;
      };
      const woken = verb === "resume" ? node.resume("box") : node.fork("taken", { name: "twin" });
      const { message, consoleTail, nextStep } = await assertRefused(woken, "AGENT_UNREACHABLE");
      assert.equal(message, `the guest's kernel has panicked: ${PANIC}`);
      assert.deepEqual(consoleTail, [PANIC, "[    9.000001] ---[ end Kernel panic ]---"]);
      assert.match(nextStep ?? "", /^the content of the sandbox's memory is lost: to boot the sandbox again, stop/);
      substrate.interfere = () => undefined;
      if (verb === "fork") return;
      await substrate.machine("box").kill();
      await node.resume("box");
      await assertAnswers(node, "box");
    });
  }

  test("`resume` ignores panic text that the workload printed", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create({ ...SPEC, hooks: { post_restore: { args: ["sleep", "3"] } } });
    await node.standby("box");
    substrate.machine("box").say(`${PANIC}\n`);
    const { warnings } = (await node.resume("box")) ?? { warnings: undefined };
    assert.ok(warnings !== undefined);
    await assertAnswers(node, "box");
  });
});
