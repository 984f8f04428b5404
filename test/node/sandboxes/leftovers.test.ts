import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ApiFailure } from "../../substrate/double/failure.ts";
import { connectHypeman, type Sandboxes } from "../../../src/node/sandboxes/index.ts";
import { listener } from "../../fixtures/listeners.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { failureOf, openNode, partsOf, SPEC, traces } from "./node.ts";
import { HttpSubstrate, MISSING } from "./substrate.ts";

/**
 * A volume keeps its attachment to an instance that a killed daemon did not make (hypeman 8853445,
 * volumes/manager.go:369).
 */
const ATTACHED = new ApiFailure(409, "conflict", "volume is in use by an instance");

async function failuresOf(node: Sandboxes): Promise<string[]> {
  return (await node.sweep()).failed.map(({ name, code, nextStep }) => `${name} ${code}: ${nextStep?.slice(0, 24)}`);
}

describe("what only the daemon's operator can remove", NEEDS_NAMESPACES, () => {
  test("is told by removal and every sweep: a volume attached to nothing, and the next sandbox of its name has another", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    substrate.fail("DELETE /volumes/{id}", ATTACHED);
    const { code, message, nextStep } = await failureOf(node.remove("box"));
    assert.equal(code, "LEFT_BEHIND");
    assert.match(
      message,
      /^box is removed, but not the volume box-credentials: the daemon says that an instance has it/,
    );
    assert.match(nextStep ?? "", /stop the daemon, delete volumes\/box-credentials in its data folder, and start it/);
    assert.deepEqual(await traces(node, substrate.stateFolder), []);
    const told = ["box-credentials LEFT_BEHIND: a daemon that was killed"];
    assert.deepEqual([await failuresOf(node), await failuresOf(node)], [told, told]);
    const { volumeId } = await node.create(SPEC);
    assert.match(volumeId, /^box-cred-/);
    substrate.interfere = () => undefined;
    assert.deepEqual((await node.sweep()).orphans, ["box-credentials"]);
    await node.remove("box");
    assert.deepEqual(substrate.left(), []);
  });

  test("is told as a ghost and not counted as removed: an instance that is listed, and is not found; its name can be used", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    let ghost: object = {};
    substrate.edits.set("GET /instances", (all: readonly object[]) => {
      ghost = all[0] ?? ghost;
      return all;
    });
    await node.list();
    await node.sweep();
    await node.remove("box");
    // A copy of its source's record in another folder (hypeman 8853445, lib/instances/snapshot.go:415): 404 by its id,
    // and two of them are ambiguous. The name is taken (lib/network/allocate.go:195).
    substrate.edits.set("GET /instances", (all: readonly object[]) => [...all, ghost]);
    const told = ["box LEFT_BEHIND: a daemon that was killed"];
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
    using client = await node.connect("box");
    assert.equal((await client.run({ args: ["true"] })).exitCode, 0);
    await node.remove("box");
    assert.deepEqual(substrate.left(), []);
  });
});

describe("a 404 that is not the daemon's", NEEDS_NAMESPACES, () => {
  test("of a path without a route or of another server says nothing about a sandbox: all of it stays, and the URL is told", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    await node.create(SPEC);
    await using other = await listener((socket) => {
      socket.once("data", () =>
        socket.end("HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<p>"),
      );
    });
    const baseUrl = `http://127.0.0.1:${other.port}`;
    using astray = await openNode(partsOf(substrate), {
      substrate: await connectHypeman({ baseUrl, apiToken: "any" }),
    });
    const { code, message, nextStep } = await failureOf(astray.remove("box"));
    assert.equal(code, "SUBSTRATE_UNAVAILABLE");
    assert.ok(message.includes(`what answers at ${baseUrl} is not the daemon`), message);
    assert.match(nextStep ?? "", /address/);
    substrate.fail("GET /instances/{id}", MISSING);
    assert.equal((await failureOf(node.remove("box"))).code, "SUBSTRATE_UNAVAILABLE");
    substrate.interfere = () => undefined;
    assert.deepEqual(await traces(node, substrate.stateFolder), ["box removing", "credentials of box"]);
    await node.remove("box");
    assert.deepEqual(substrate.left(), []);
  });
});
