import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { connect } from "../../../src/node/client/index.ts";
import { type ClientCredentials, readClientCredentials } from "../../../src/node/credentials/index.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { runGuestctl } from "../guestctl/guestctl.ts";
import { assertAnswers, assertRefused, guestctlVariablesOf, it, NodeProcess, openNode, partsOf, SPEC } from "./node.ts";
import { HttpSubstrate } from "./substrate.ts";

const DAY_MS = 86_400_000;

async function isAccepted(address: string | undefined, credentials: ClientCredentials): Promise<boolean> {
  using client = connect({ address: address ?? "", ...credentials });
  return await client.health({ requestTimeoutMs: 60_000 }).then(
    () => true,
    () => false,
  );
}

function directoriesIn(substrate: HttpSubstrate): Promise<string[]> {
  return readdir(join(substrate.stateDirectory, "credentials"));
}

describe("credential rotation", NEEDS_NAMESPACES, () => {
  it("`rotate` gives a running sandbox new credentials and deletes the old ones", async ({ node, substrate }) => {
    const { credentials: directory, address } = await node.get("box");
    const old = await readClientCredentials(directory);
    const rotated = await node.rotate("box");
    assert.equal(rotated.credentials, directory);
    const fresh = await readClientCredentials(directory);
    assert.ok(!fresh.caPem.equals(old.caPem) && fresh.token !== old.token);
    await assertAnswers(node, "box");
    assert.deepEqual(
      [await isAccepted(address, old), await isAccepted(address, { ...fresh, token: old.token })],
      [false, false],
    );
    assert.deepEqual(await directoriesIn(substrate), ["box"]);
    // What is suspended keeps them, and so does what boots from its disk.
    await node.standby("box");
    await assertRefused(node.rotate("box"), "WRONG_STATE", /box is Standby; only a running sandbox/);
    await node.resume("box");
    await node.stop("box");
    await node.resume("box");
    await assertAnswers(node, "box");
  });

  test("`sweep` or `rotate` completes a rotation that was killed at any step", async () => {
    await using substrate = await HttpSubstrate.start();
    {
      using node = await openNode(partsOf(substrate));
      await node.create(SPEC);
    }
    for (const finish of ["sweep", "rotate"] as const) {
      let step = 0;
      for (; ; step++) {
        const killed = new NodeProcess(substrate, "rotate", {}, step);
        await killed.outcome();
        if (killed.child.signalCode !== "SIGKILL") break;
        using node = await openNode(partsOf(substrate));
        if (finish === "rotate") await node.rotate("box");
        else assert.deepEqual((await node.sweep()).failed, [], `killed before step ${step}`);
        await assertAnswers(node, "box");
        assert.deepEqual(await directoriesIn(substrate), ["box"], `killed before step ${step}`);
        const again = await node.sweep();
        assert.deepEqual([again.failed, again.awakened], [[], []]);
      }
      assert.ok(step >= 3, `${step} steps`);
    }
  });

  it("`rotateAll` rotates credentials older than olderThanMs and skips suspended sandboxes", async ({ node }) => {
    await node.create({ ...SPEC, name: "sleeper" });
    await node.standby("sleeper");
    const progress: string[] = [];
    const none = await node.rotateAll({ olderThanMs: 30 * DAY_MS });
    assert.deepEqual(none, { rotated: [], skipped: [], failed: [] });
    const report = await node.rotateAll({ onProgress: ({ done, total }) => progress.push(`${done}/${total}`) });
    assert.deepEqual(report, { rotated: ["box"], skipped: ["sleeper"], failed: [] });
    assert.deepEqual(progress, ["0/2", "1/2", "2/2"]);
    await node.resume("sleeper");
    await assertAnswers(node, "sleeper");
  });

  it("`sandbox rotate` prints its result; `sandbox status` prints when the credentials expire", async ({
    substrate,
  }) => {
    const guestctl = (...args: readonly string[]): ReturnType<typeof runGuestctl> =>
      runGuestctl(["sandbox", ...args], guestctlVariablesOf(substrate));
    const one = await guestctl("rotate", "box");
    assert.deepEqual([one.stdout, one.exitCode], ["box has new credentials\n", 0], one.stderr);
    assert.match(one.stderr, /^guestctl: rotate box: issue credentials\n/);
    const young = await guestctl("rotate", "--all", "--older-than", "30d");
    assert.deepEqual([young.stdout, young.exitCode], ["nothing to rotate\n", 0], young.stderr);
    const all = JSON.parse((await guestctl("rotate", "--all", "--json")).stdout) as { readonly duration_ms: number };
    assert.deepEqual(all, { rotated: ["box"], skipped: [], failed: [], duration_ms: all.duration_ms });
    assert.ok(Number.isInteger(all.duration_ms));
    assert.match((await guestctl("status", "box")).stdout, /\ncredentials: +\/.*\/box, valid until 2\d{3}-\d\d-\d\d\n/);
    const wrong = await guestctl("rotate");
    assert.match(wrong.stderr, /sandbox rotate requires one name, or --all/);
  });

  test("`sandbox status` suggests `rotate` if credentials expire within thirty days", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate), { credentialLifetimeMs: 10 * DAY_MS });
    await node.create(SPEC);
    const { stdout } = await runGuestctl(["sandbox", "status", "box"], guestctlVariablesOf(substrate));
    assert.match(stdout, /, valid until .* \(in 9 days\); to renew them: guestctl sandbox rotate box\n/);
    const { expiring } = await node.status();
    assert.deepEqual(
      expiring.map(({ name }) => name),
      ["box"],
    );
  });
});
