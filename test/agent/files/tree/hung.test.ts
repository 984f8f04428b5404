import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { startAgent } from "../../../fixtures/agent.ts";
import { TreeCalls } from "../../../fixtures/file-tree.ts";
import { failureOf, FileCalls, testFolder } from "../../../fixtures/files.ts";
import { fuseMount } from "../../../fixtures/fuse-mount.ts";
import { NEEDS_FUSE } from "../../../fixtures/privileges.ts";

describe("a folder in which a dead file system is mounted", () => {
  it(
    "is listed, with the errno of that entry, and removed but for it; nothing else counts as dead",
    NEEDS_FUSE,
    async () => {
      await using folder = await testFolder();
      const hung = folder.at("top/hung");
      await mkdir(folder.at("top"));
      for (const name of ["top/a", "top/z"]) await writeFile(folder.at(name), "content");
      await using mount = await fuseMount("hanging_mount", hung);
      await using agent = await startAgent();
      using calls = new TreeCalls(agent);
      using files = new FileCalls(agent);
      const listed = async (crossMounts: boolean): Promise<string[]> => {
        const entries = await calls.list({ path: folder.at("top"), depth: 2, crossMounts });
        return entries.map(({ name, errno }) => `${Buffer.from(name).toString()} ${errno}`).toSorted();
      };
      for (const crossMounts of [false, true])
        assert.deepEqual(await listed(crossMounts), ["a ", "hung ETIMEDOUT", "z "]);
      const dead = await failureOf(calls.list({ path: hung }));
      assert.deepEqual([dead.reason, dead.metadata["mount"]], ["FILE_SYSTEM_HUNG", hung]);
      assert.equal((await files.read(folder.at("top/a"))).data.toString(), "content");
      assert.deepEqual(await calls.remove({ path: folder.at("top"), recursive: true }), {
        removed: 2,
        left: 1,
        entries: { hung: "EBUSY" },
      });
      await mount[Symbol.asyncDispose]();
      assert.deepEqual(await agent.stop(), { code: 0, signal: null });
    },
  );
});
