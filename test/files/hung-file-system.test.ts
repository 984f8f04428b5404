import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { describe, it } from "node:test";
import { startAgent } from "../fixtures/agent.ts";
import { exec } from "../fixtures/exec-stream.ts";
import { FileCalls, testFolder } from "../fixtures/files.ts";
import { program } from "../fixtures/programs/index.ts";

/** Mounts a file system whose server never answers; undefined where the kernel refuses. */
async function hangingMount(folder: string): Promise<ChildProcess | undefined> {
  const mount = spawn(program("hanging_mount"), [folder], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(mount, "exit");
  const isReady = await Promise.race([once(mount.stdout, "data").then(() => true), ended.then(() => false)]);
  return isReady ? mount : undefined;
}

describe("a file system that hangs", () => {
  it("holds up file calls alone: commands run, Health is answered, and SIGTERM ends the agent", async (t) => {
    await using folder = await testFolder();
    const mount = await hangingMount(folder.path);
    if (mount === undefined) {
      t.skip("needs root and FUSE");
      return;
    }
    const unmounted = once(mount, "exit");
    try {
      await using agent = await startAgent();
      using files = new FileCalls(agent);
      const abort = new AbortController();
      const hanging = Array.from({ length: 8 }, async (_, i) => {
        for await (const chunk of files.chunks({ path: folder.at(`file-${i}`) }, { signal: abort.signal })) void chunk;
      });
      const settled = Promise.allSettled(hanging);
      const { exit, stdout } = await exec(agent, { args: ["echo", "alive"], user: "daemon" });
      assert.deepEqual([exit.code, stdout.toString()], [0, "alive\n"]);
      abort.abort();
      assert.ok((await settled).every((outcome) => outcome.status === "rejected"));
      assert.deepEqual(await agent.stop(), { code: 0, signal: null });
    } finally {
      mount.stdin?.end();
      await unmounted;
    }
  });
});
