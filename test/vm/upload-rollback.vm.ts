import assert from "node:assert/strict";
import { mkdir, utimes, writeFile } from "node:fs/promises";
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
const FILES = 1_500;
/** Time of every file in an archive of npm pack: two builds have files of the same time, and often of the same size. */
const PACKED_AT = new Date("1985-10-26T08:15:00Z");

/** Writes the files of a build. Two builds differ only in the content of their files. */
async function writeBuild(directory: string, build: "old" | "new"): Promise<void> {
  await mkdir(directory);
  for (let at = 0; at < FILES; at += 1) {
    const file = join(directory, `${at}`);
    await writeFile(file, `${build} ${at}\n`.repeat(at % 100 === 0 ? 200_000 : 200));
    await utimes(file, PACKED_AT, PACKED_AT);
  }
}

describe("a directory upload into a sandbox that is rolled back", () => {
  const stage = new Stage({});
  after(() => stage.end());

  test("after a rollback, a continued upload replaces old files of equal size", async (t) => {
    await using place = await testDirectory();
    const [old, current, back] = [place.at("old"), place.at("new"), place.at("back")];
    await writeBuild(old, "old");
    await writeBuild(current, "new");
    await stage.boot();
    {
      using client = stage.client();
      await client.files.upload(old, THERE);
    }
    const agent = { host: "127.0.0.1", port: stage.machine.agentPort };
    // The sandbox keeps its address; the test's machines do not.
    await using relay = await relayTo(agent);
    const { certificates, token } = stage.guest;
    using client = clientOf({ port: relay.port, certificates, token });
    let entries = 0;
    let [awaited, reached] = [100, Promise.withResolvers<void>()];
    const uploading = client.files.upload(current, THERE, {
      onProgress: (done) => {
        entries = done.entries;
        if (entries > awaited) reached.resolve();
      },
    });
    await Promise.race([reached.promise, uploading]);
    {
      using other = stage.client();
      await other.snapshots.prepare({ freezeMs: FREEZE_MS });
    }
    const snapshot = await stage.guest.snapshot(stage.machine, "middle");
    const before = entries;
    assert.ok(before < FILES - 300, `${before} entries: the snapshot is from the middle of the upload`);
    // The source continues, and the upload with it.
    [awaited, reached] = [before + 200, Promise.withResolvers<void>()];
    await stage.machine.resume();
    await restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS });
    await Promise.race([reached.promise, uploading]);
    const since = entries;
    assert.ok(since < FILES, `${since} entries: the guest is rolled back during the upload`);

    // Rolled back: files that this upload has written since the snapshot are those of the old build again.
    await stage.replaceMachine(() => stage.guest.start(snapshot));
    agent.port = stage.machine.agentPort;
    relay.cut();
    relay.mend();
    await restoreSequence(() => stage.client(), { reachTimeoutMs: REACH_MS });
    assert.equal((await uploading).files, FILES);
    t.diagnostic(`${before} entries before the snapshot, ${since} before the guest was rolled back`);

    using checked = stage.client();
    await checked.files.download(THERE, back);
    const { stdout } = spawnSync("diff", ["-rq", current, back], { encoding: "utf8" });
    assert.equal(stdout, "");
  });
});
