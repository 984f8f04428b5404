import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { openNode, partsOf, assertRefused, assertAnswers } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

const UPLOAD = "POST /volumes/from-archive";

describe("the agent's volume", NEEDS_NAMESPACES, () => {
  test("concurrent `create` calls upload the agent's volume only once", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    const uploaded: string[] = [];
    substrate.edits.set(UPLOAD, (answer: { readonly id: string }) => {
      uploaded.push(answer.id);
      return answer;
    });
    const names = ["one", "two", "three"];
    await Promise.all(names.map((name) => node.create({ image: IMAGE, name })));
    assert.deepEqual(
      uploaded.toSorted().map((id) => id.replace(/-[0-9a-f]{16}$/, "")),
      ["guest-agent", "one-credentials", "three-credentials", "two-credentials"],
    );
    for (const name of names) await assertAnswers(node, name);
  });

  test("`create` works with an agent archive that is larger than any buffer", async () => {
    await using substrate = await HttpSubstrate.start();
    // A second member, which gzip and tar read as one with the first: larger than any buffer on the way.
    const filler = randomBytes(8 * 2 ** 20);
    const program = readFileSync(substrate.agentArchive);
    writeFileSync(substrate.agentArchive, program);
    appendFileSync(substrate.agentArchive, gzipSync(filler));
    using node = await openNode(partsOf(substrate));
    await node.create({ image: IMAGE, name: "box" });
    await assertAnswers(node, "box");
  });

  test("`create` without a readable agent archive says how to make one", async () => {
    await using substrate = await HttpSubstrate.start();
    const nextStep = /agent\.archive; "npm run build" .* makes dist\/guest-agent-VERSION-linux-ARCH\.tar\.gz$/;
    for (const [agent, message] of [
      [undefined, /no agent archive was given/],
      [{ archive: "/nowhere/guest-agent.tar.gz" }, /cannot read the agent's archive \/nowhere\/guest-agent\.tar\.gz: /],
    ] as const) {
      using node = await openNode(partsOf(substrate), { agent });
      await assertRefused(node.create({ image: IMAGE, name: "box" }), "INVALID_SPEC", message, nextStep);
    }
  });

  test("`create` fails with INVALID_SPEC if the agent's archive changes during upload", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    substrate.interfere = (request, when) => {
      // The archive's digest is in the name already; the content is not sent yet.
      if (request === UPLOAD && when === "before") appendFileSync(substrate.agentArchive, gzipSync(""));
      return undefined;
    };
    await assertRefused(node.create({ image: IMAGE, name: "box" }), "INVALID_SPEC", /was replaced during the call/);
    assert.deepEqual(substrate.left(), []);
    substrate.interfere = () => undefined;
    await node.create({ image: IMAGE, name: "box" });
  });
});
