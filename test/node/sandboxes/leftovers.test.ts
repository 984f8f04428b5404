import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { assertAnswers, assertRefused, CREATE, failureOf, it, openNode, partsOf, SPEC, traces } from "./node.ts";
import { HttpSubstrate, INTERNAL, MISSING } from "./substrate.ts";
import { ApiFailure } from "../../substrate/double/failure.ts";
import { connectHypeman, type Sandboxes } from "../../../src/node/sandboxes/index.ts";
import { listener } from "../../fixtures/listeners.ts";

describe("create with an unknown outcome", NEEDS_NAMESPACES, () => {
  test("`create` and other operations succeed even if the daemon's responses are lost", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    let cuts = 0;
    substrate.interfere = (request, when) =>
      request === CREATE && when === "after" && cuts++ === 0 ? "cut" : undefined;
    const { state, instanceId } = await node.create(SPEC);
    assert.deepEqual([state, instanceId], ["Running", substrate.instances.get("box").id]);
    assert.equal(substrate.requests.filter((request) => request === CREATE).length, 1, "it was asked for once");
    // The same for what changes it.
    const lost: string[] = [];
    substrate.interfere = (request, when) => {
      if (request.startsWith("GET") || when === "before") return undefined;
      lost.push(request);
      return "cut";
    };
    await node.standby("box");
    await node.resume("box");
    await node.snapshot("box", { name: "taken" });
    await node.fork("taken", { name: "forked" });
    for (const name of ["box", "taken", "forked"]) await node.remove(name);
    assert.equal(lost.length, new Set(lost).size + 1, `only an instance was deleted twice: ${lost.join(", ")}`);
    assert.deepEqual(substrate.left(), []);
  });

  test("sandbox operations succeed if the daemon completes a call but answers 500", async () => {
    // hypeman 8853445, cmd/api/main.go:523: the outcome is as unknown as that of a lost answer.
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    substrate.fail(/^POST \/(?!volumes)/, INTERNAL, "after");
    assert.equal((await node.create(SPEC)).state, "Running");
    await node.standby("box");
    await node.resume("box");
    await node.snapshot("box", { name: "taken" });
    await node.fork("taken", { name: "one" });
    await node.fork("box", { name: "two" });
    await node.stop("two");
    assert.deepEqual((await node.list()).map(({ name, state }) => `${name} ${state}`).toSorted(), [
      "box Running",
      "one Running",
      "two Stopped",
    ]);
    const calls = ["standby", "restore", "snapshots"].map((word) => `POST /instances/{id}/${word}`);
    for (const call of [CREATE, ...calls])
      assert.equal(substrate.requests.filter((each) => each === call).length, 1, call);
    for (const name of ["box", "taken", "one", "two"]) await node.remove(name);
    assert.deepEqual(substrate.left(), []);
  });

  test("a sweep during `create` does not remove the new sandbox", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    const sweeps: unknown[] = [];
    substrate.interfere = async (request, when) => {
      if (when === "after" && request.startsWith("POST")) sweeps.push(await node.sweep());
      return undefined;
    };
    await node.create(SPEC);
    const nothing = { removed: [], orphans: [], awakened: [], late: [], warnings: [], completed: [], failed: [] };
    assert.deepEqual(sweeps, [nothing, nothing, nothing]);
    await assertAnswers(node, "box");
    await node.remove("box");
  });
});

/**
 * A volume keeps its attachment to an instance that a killed daemon did not make (hypeman 8853445,
 * volumes/manager.go:369).
 */
const ATTACHED = new ApiFailure(409, "conflict", "volume is in use by an instance");

async function failuresOf(node: Sandboxes): Promise<string[]> {
  return (await node.sweep()).failed.map(({ name, code, nextStep }) => `${name} ${code}: ${nextStep?.slice(0, 23)}`);
}

describe("what only the daemon's operator can remove", NEEDS_NAMESPACES, () => {
  it("`remove` and `sweep` report LEFT_BEHIND for a volume that stays attached", async (place) => {
    const { node, substrate } = place;
    substrate.fail("DELETE /volumes/{id}", ATTACHED);
    const { message, nextStep } = await assertRefused(node.remove("box"), "LEFT_BEHIND");
    assert.match(
      message,
      /^box is removed; the volume box-credentials is not removed: the daemon lists it as in use by an instance that does not exist/,
    );
    assert.match(
      nextStep ?? "",
      /stop the daemon, delete volumes\/box-credentials in its data directory, and start the daemon again/,
    );
    assert.deepEqual(await traces(node, substrate.stateDirectory), []);
    const told = ["box-credentials LEFT_BEHIND: a daemon that is killed"];
    assert.deepEqual([await failuresOf(node), await failuresOf(node)], [told, told]);
    const { volumeId } = await node.create(SPEC);
    assert.match(volumeId, /^box-cred-/);
    substrate.interfere = () => undefined;
    assert.deepEqual((await node.sweep()).orphans, ["box-credentials"]);
    await node.remove("box");
    assert.deepEqual(substrate.left(), []);
  });

  it("`sweep` reports LEFT_BEHIND if the daemon lists but cannot find an instance", async (place) => {
    const { node, substrate } = place;
    let ghost: object = {};
    substrate.edits.set("GET /instances", (all: readonly object[]) => {
      ghost = all[0] ?? ghost;
      return all;
    });
    await node.list();
    await node.sweep();
    await node.remove("box");
    // A copy of its source's record in another directory (hypeman 8853445, lib/instances/snapshot.go:415): 404 by its
    // id, and two of them are ambiguous. The name is taken (lib/network/allocate.go:195).
    substrate.edits.set("GET /instances", (all: readonly object[]) => [...all, ghost]);
    const told = ["box LEFT_BEHIND: a daemon that is killed"];
    assert.deepEqual(await failuresOf(node), told);
    substrate.fail("GET /instances/{id}", new ApiFailure(409, "ambiguous", "multiple resources match, use full ID"));
    assert.deepEqual(await failuresOf(node), told);
    let isFirst = true;
    substrate.interfere = (operation) => {
      if (operation !== "POST /instances" || !isFirst) return undefined;
      isFirst = false;
      return new ApiFailure(400, "name_conflict", "instance name 'box' already exists");
    };
    const { instanceName = "" } = await node.create(SPEC);
    assert.match(instanceName, /^box-[0-9a-f]{8}$/);
    assert.deepEqual(await failuresOf(node), told, "its own instance is known");
    await assertAnswers(node, "box");
    await node.remove("box");
    assert.deepEqual(substrate.left(), []);
  });
});

describe("records left by a killed daemon after a fork", NEEDS_NAMESPACES, () => {
  it("`sweep` reports duplicate instance records, which do not affect the sandbox's state", async ({
    node,
    substrate,
  }) => {
    let shown: readonly object[] = [];
    substrate.edits.set("GET /instances", (all: readonly object[]) => {
      shown = shown.length > 0 ? shown : all;
      const records = shown.map((instance) => ({ ...instance, state: "Standby" }));
      return [...all, ...records, ...records];
    });
    assert.equal((await node.list())[0]?.state, "Running");
    for (const _ of [1, 2]) {
      const { failed, orphans, removed } = await node.sweep();
      const [failure] = failed;
      assert.deepEqual([failed.length, orphans, removed], [1, [], []]);
      assert.deepEqual([failure?.name, failure?.code], ["box", "LEFT_BEHIND"]);
      assert.match(failure?.message ?? "", /^the daemon lists box 3 times under the id \w+: only one of these/);
      assert.match(
        failure?.nextStep ?? "",
        /stop the daemon; in guests\/ of .*, delete each directory .*; start the daemon again$/,
      );
    }
    await assertAnswers(node, "box");
    // Several records, and no instance: 409 by the id, also when create asks why the name is taken.
    await node.remove("box");
    let creations = 0;
    substrate.interfere = (operation) => {
      if (operation === CREATE && ++creations === 1)
        return new ApiFailure(400, "name_conflict", "instance name 'box' already exists");
      const isAmbiguous = operation === "GET /instances/{id}" && creations === 1;
      return isAmbiguous ? new ApiFailure(409, "ambiguous", "multiple resources match, use full ID") : undefined;
    };
    const { instanceName = "" } = await node.create(SPEC);
    assert.match(instanceName, /^box-[0-9a-f]{8}$/);
    await assertAnswers(node, "box");
    substrate.fail("GET /instances/{id}", new ApiFailure(409, "ambiguous", "multiple resources match, use full ID"));
    await assertRefused(
      node.standby("box"),
      "LEFT_BEHIND",
      /409 ambiguous/,
      /stop the daemon; .*, delete each directory/,
    );
  });
});

describe("a 404 that is not the daemon's", NEEDS_NAMESPACES, () => {
  it("`remove` fails if a server other than the daemon answers with 404", async (place) => {
    const { node, substrate } = place;
    await using other = await listener((socket) => {
      socket.once("data", () =>
        socket.end("HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<p>"),
      );
    });
    const baseUrl = `http://127.0.0.1:${other.port}`;
    using astray = await openNode(partsOf(substrate), {
      substrate: await connectHypeman({ baseUrl, apiToken: "any" }),
    });
    const { message } = await assertRefused(astray.remove("box"), "SUBSTRATE_UNAVAILABLE", /(?:)/, /address/);
    assert.ok(message.includes(`the server at ${baseUrl} is not the daemon`), message);
    substrate.fail("GET /instances/{id}", MISSING);
    assert.equal((await failureOf(node.remove("box"))).code, "SUBSTRATE_UNAVAILABLE");
    substrate.interfere = () => undefined;
    assert.deepEqual(await traces(node, substrate.stateDirectory), ["box removing", "credentials of box"]);
    await node.remove("box");
    assert.deepEqual(substrate.left(), []);
  });
});
