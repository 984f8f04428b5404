import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { startAgent } from "../../fixtures/agent.ts";
import { testFolder } from "../../fixtures/files.ts";
import { fuseMount } from "../../fixtures/fuse-mount.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";

describe("a start with a file on a file system that never answers", { concurrency: true, ...NEEDS_FUSE }, () => {
  for (const variable of ["SVC_TLS_KEY_FILE", "SVC_INSTANCE_TOKEN_FILE", "SVC_PROCESS_SPEC_FILE"]) {
    it(`ends with status 78, and names ${variable}`, async () => {
      await using folder = await testFolder();
      const hung = folder.at("hung");
      await using _mount = await fuseMount("hanging_mount", hung);
      const token = variable === "SVC_INSTANCE_TOKEN_FILE" ? { SVC_INSTANCE_TOKEN: undefined } : {};
      await using agent = await startAgent({ env: { ...token, [variable]: `${hung}/file` }, awaitListening: false });
      assert.deepEqual(await agent.exited, { code: 78, signal: null });
      const words = `guest-agent: ${variable}: names a file whose file system does not answer (ETIMEDOUT)\n`;
      assert.equal(agent.output.stderr, words);
    });
  }

  it("ends also where standard error is full and nobody reads it", async () => {
    await using folder = await testFolder();
    const hung = folder.at("hung");
    await using _mount = await fuseMount("hanging_mount", hung);
    const fill = 'mkfifo full; exec 3<>full; dd if=/dev/zero of=full bs=4k count=16 2>/dev/null; exec 2>&3; exec "$@"';
    await using agent = await startAgent({
      env: { SVC_TLS_KEY_FILE: `${hung}/file` },
      through: ["sh", "-c", `cd ${folder.path}; ${fill}`, "sh"],
      awaitListening: false,
    });
    assert.deepEqual(await agent.exited, { code: 78, signal: null });
  });
});
