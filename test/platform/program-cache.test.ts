import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { fstatSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { dropProgramCache } from "../../src/platform/index.ts";
import { addon } from "../fixtures/spawning.ts";

test("the bundle's executable is dropped from the page cache, and its absence is no failure", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "guest-agent-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "agent.bin"), "program");
  const dropped: number[] = [];
  const dropFileCache = (fd: number): number => {
    dropped.push(fstatSync(fd).size);
    return addon.dropFileCache(fd);
  };
  dropProgramCache({ dropFileCache }, folder);
  assert.deepEqual(dropped, ["program".length]);
  dropProgramCache({ dropFileCache }, join(folder, "absent"));
  assert.equal(dropped.length, 1);
});
