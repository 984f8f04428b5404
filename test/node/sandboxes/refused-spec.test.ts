import assert from "node:assert/strict";
import { join } from "node:path";
import { describe } from "node:test";
import { connect, type GuestClient } from "../../../src/node/client/index.ts";
import { readClientCredentials } from "../../../src/node/credentials/index.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { Events } from "../../substrate/double/server.ts";
import { assertAnswers, assertRefused, it } from "./node.ts";
import type { HttpSubstrate } from "./substrate.ts";

const FORK = "POST /instances/{id}/fork";
const PROCESS_SPEC = "/srv/credentials/process.json";
const HOOKS_SPEC = "/srv/credentials/hooks.json";
/** Together with the rest of the spec more than the agent reads. */
const TOO_LARGE = { BIG: "x".repeat(2 ** 20) };
/** What isolation needs is not the subject here: a machine without cgroups freezes nothing. */
const ANYHOW = { acceptUnfrozen: true };

/** A connection that bypasses the node, while the node admits nobody. */
async function dial(substrate: HttpSubstrate): Promise<GuestClient> {
  const { ip } = substrate.instances.get("box").network;
  const credentials = await readClientCredentials(join(substrate.stateDirectory, "credentials/box"));
  return connect({ address: `${ip}:${substrate.agentPort}`, ...credentials });
}

// In this double a fork is another process, which was never frozen: test/vm has forks of a frozen session.
describe("a spec file in the guest that its agent rejects", NEEDS_NAMESPACES, () => {
  it("a fork whose agent rejects its spec fails with ENV_NOT_TAKEN and is removed", async (place) => {
    const { node, substrate } = place;
    for (const [path, env] of [
      [PROCESS_SPEC, undefined],
      [HOOKS_SPEC, undefined],
      [PROCESS_SPEC, { KEY: "of-its-own" }],
    ] as const) {
      substrate.interfere = async (request, when) => {
        if (request !== FORK || when === "before") return undefined;
        await substrate.said("twin", /"event":"agent_started"/);
        substrate.machine("twin").touch(path);
        return undefined;
      };
      const forked = node.fork("box", { name: "twin", env, freeze: "off" });
      const { message } = await assertRefused(
        forked,
        "ENV_NOT_TAKEN",
        /^the agent of twin refuses /,
        /^repair the spec file/,
      );
      assert.match(message, new RegExp(`in the guest: .*SVC_${path === HOOKS_SPEC ? "HOOKS" : "PROCESS"}_SPEC_FILE`));
      assert.deepEqual(substrate.left(), ["instance box", "volume box-credentials"]);
      await assertAnswers(node, "box");
    }
    substrate.interfere = () => undefined;
    const refused = node.fork("box", { name: "twin", env: TOO_LARGE, freeze: "off" });
    await assertRefused(refused, "ENV_NOT_TAKEN", /^the agent of twin refuses /);
    assert.deepEqual(substrate.left(), ["instance box", "volume box-credentials"]);
  });

  it("ENV_NOT_TAKEN quotes the agent's reason even if the log arrives late", async ({ node, substrate }) => {
    await node.standby("box");
    let readings = 0;
    substrate.edits.set("GET /instances/{id}/logs", ({ values }: Events) => {
      readings += 1;
      return new Events(readings > 2 ? values : values.filter((line) => !String(line).includes("process_env_refused")));
    });
    const resumed = node.resume("box", { env: TOO_LARGE, ...ANYHOW });
    await assertRefused(resumed, "ENV_NOT_TAKEN", /in the guest: .*SVC_PROCESS_SPEC_FILE/);
    assert.equal(readings, 3);
  });

  it("`resume` restores the old spec if the agent rejects new variables", async ({ node, substrate }) => {
    await node.standby("box");
    const nextStep = /^box stays frozen for some minutes; within this time, call sandboxes\.resume\("box"\) again/;
    const resumed = node.resume("box", { env: TOO_LARGE, ...ANYHOW });
    await assertRefused(resumed, "ENV_NOT_TAKEN", /^the agent of box refuses /, nextStep);
    {
      using client = await dial(substrate);
      const spec = (await client.files.readFile(PROCESS_SPEC)).toString();
      assert.doesNotMatch(spec, /BIG/);
      const { preSnapshot } = await node.get("box");
      assert.equal((await client.health()).frozen, preSnapshot?.freeze === "frozen");
    }
    assert.equal((await node.get("box")).runEpochMs, undefined, "its duties are due");
    await node.resume("box", { env: { KEY: "of-its-own" }, ...ANYHOW });
    using client = await node.connect("box");
    assert.equal((await client.run(["sh", "-c", "echo $KEY ${#BIG}"])).stdout, "of-its-own 0\n");
  });

  it("if a spec file is damaged, `resume` rejects `env` but otherwise succeeds", async (place) => {
    const { node, substrate } = place;
    for (const path of [HOOKS_SPEC, PROCESS_SPEC]) {
      await node.standby("box");
      substrate.machine("box").touch(path);
      const resumed = node.resume("box", { env: { KEY: "of-its-own" }, ...ANYHOW });
      const problem = new RegExp(`^${path} in the guest is missing or not a JSON object`);
      await assertRefused(
        resumed,
        "ENV_NOT_TAKEN",
        problem,
        /resume\("box"\) again with other variables, or without env/,
      );
      const awakening = await node.resume("box");
      assert.equal(awakening?.isSpecRefused, true);
      await assertAnswers(node, "box");
    }
  });
});
