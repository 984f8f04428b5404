import assert from "node:assert/strict";
import { readdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { removeOtherVersions } from "../../scripts/package/archive.ts";
import { testDirectory } from "../fixtures/files.ts";

test("a build removes the archives of other versions", async () => {
  await using directory = await testDirectory();
  const kept = ["SHA256SUMS", "client", "guest-agent-0.4.0-linux-x64-docker.tar", "guest-agent-0.4.0-linux-x64.tar.gz"];
  const others = ["guest-agent-0.3.0-linux-arm64.tar.zst", "guest-agent-0.4.0-rc.1-linux-x64.tar.gz"];
  for (const name of [...kept, ...others]) writeFileSync(directory.at(name), "");
  removeOtherVersions(directory.path, "0.4.0");
  assert.deepEqual(readdirSync(directory.path).toSorted(), kept);
});
