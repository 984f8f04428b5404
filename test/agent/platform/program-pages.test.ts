import assert from "node:assert/strict";
import { fstatSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { ADVICE_DONT_NEED, ADVICE_NORMAL, ADVICE_RANDOM } from "../../../src/agent/native/index.ts";
import { ProgramPages } from "../../../src/agent/platform/index.ts";
import { type TestDirectory, testDirectory } from "../../fixtures/files.ts";
import { addon } from "../../fixtures/spawning.ts";

/** The real addon, and its calls. Sizes identify the files. */
function recording() {
  const [dropped, advised]: [number[], number[]] = [[], []];
  const dropFileCache = (fd: number): number => {
    dropped.push(fstatSync(fd).size);
    return addon.dropFileCache(fd);
  };
  const adviseCode = (advice: number): number => {
    advised.push(advice);
    const result = addon.adviseCode(advice);
    assert.equal(result, 0, "the running program takes it");
    return result;
  };
  return { dropped, advised, recorder: { dropFileCache, adviseCode } };
}

async function bundleDirectory(): Promise<TestDirectory> {
  const directory = await testDirectory();
  await mkdir(directory.at("lib"));
  for (const [name, text] of Object.entries({ "guest-agent": "1", "agent.bin": "12", "lib/libc.so.6": "123" }))
    await writeFile(directory.at(name), text);
  return directory;
}

test("ProgramPages unmaps program pages and drops each program from the page cache", async () => {
  const { dropped, advised, recorder } = recording();
  await using directory = await bundleDirectory();
  const pages = new ProgramPages(recorder, directory.path);
  pages.readOnlyTouched();
  pages.release();
  assert.deepEqual(dropped, [1, 2, 3]);
  assert.deepEqual(advised, [ADVICE_RANDOM, ADVICE_NORMAL, ADVICE_DONT_NEED]);
  assert.ok(addon.adviseCode(-1) < 0);
});

test("ProgramPages ignores a missing or unreadable program", async () => {
  const { dropped, advised, recorder } = recording();
  await using directory = await bundleDirectory();
  await rm(directory.at("agent.bin"));
  new ProgramPages(recorder, directory.path).release();
  assert.deepEqual(dropped, [1, 3]);
  new ProgramPages(recorder, directory.at("absent")).release();
  assert.equal(advised.at(-1), ADVICE_DONT_NEED);
});
