import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, open, symlink, writeFile } from "node:fs/promises";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { restoreSequence } from "../../src/node/client/index.ts";
import { testDirectory } from "../fixtures/files.ts";
import { relayTo } from "../fixtures/relay.ts";
import { clientOf } from "../fixtures/guest-client.ts";
import { Stage } from "./cases/stage.ts";

const REACH_MS = 600_000;
const FREEZE_MS = 600_000;
const THERE = "/srv/app/tree";

describe("a directory upload into a sandbox", () => {
  const stage = new Stage({});
  after(() => stage.end());

  test("a directory upload resumes after a standby and copies what is missing", async (t) => {
    await using directory = await testDirectory();
    const [source, back] = [directory.at("source"), directory.at("back")];
    for (let at = 0; at < 1_000; at += 1) {
      const sub = join(source, `${at % 50}`);
      if (at < 50) await mkdir(sub, { recursive: true });
      await writeFile(join(sub, `${at}`), randomBytes(at));
    }
    // In the kernel's order of names between the others.
    for (const name of ["30/large", "40/large", "49/large"])
      await writeFile(join(source, name), randomBytes(12_000_000));
    await symlink("../30/large", join(source, "45/link"));
    await using sparse = await open(join(source, "35/sparse"), "w");
    await sparse.truncate(50_000_000);

    await stage.boot();
    const place = { host: "127.0.0.1", port: stage.machine.agentPort };
    // The sandbox keeps its address; the test's machines do not.
    await using relay = await relayTo(place);
    const { certificates, token } = stage.guest;
    using client = clientOf({ port: relay.port, certificates, token });
    const begun = Promise.withResolvers<void>();
    let entries = 0;
    const uploading = client.files.upload(source, THERE, {
      onProgress: (done) => {
        entries = done.entries;
        if (entries > 300) begun.resolve();
      },
    });
    await Promise.race([begun.promise, uploading]);
    {
      using other = stage.client();
      await other.snapshots.prepare({ freezeMs: FREEZE_MS });
    }
    const snapshot = await stage.guest.snapshot(stage.machine, "standby");
    const before = entries;
    assert.ok(before < 1_000, `${before} entries: it was in its middle`);
    await stage.replaceMachine(() => stage.guest.start(snapshot));
    place.port = stage.machine.agentPort;
    relay.cut();
    relay.mend();
    await restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS });
    assert.equal((await uploading).files, 1_004);
    t.diagnostic(`${before} entries before the standby`);

    using checked = stage.client();
    for await (const { name, errno } of checked.files.opendir(THERE, { depth: 3 }))
      assert.ok(!name.includes("svc-guest") && errno === undefined, `${name} ${errno}`);
    await checked.files.download(THERE, back);
    const { stdout } = spawnSync("diff", ["-r", "--no-dereference", source, back], { encoding: "utf8" });
    assert.equal(stdout, "");
  });
});
