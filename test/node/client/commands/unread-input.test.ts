import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { symlink, writeFile } from "node:fs/promises";
import { stripTypeScriptTypes } from "node:module";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { makeClientLibrary } from "../../../../scripts/package/client-library.ts";
import { LOWEST_NODE } from "../../../../scripts/package/node.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { SERVER_NAME } from "../../../fixtures/certificates.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { provideNode } from "../../../fixtures/toolchains.ts";

const ROOT = join(import.meta.dirname, "../../../..");
const PROGRAM = join(ROOT, "test/fixtures/programs/unread-input.ts");

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(await startAgent());
await makeClientLibrary(ROOT, join(directory, "library"));
await symlink(join(ROOT, "node_modules"), join(directory, "node_modules"));
await writeFile(join(directory, "program.mjs"), stripTypeScriptTypes(readFileSync(PROGRAM, "utf8")));

describe("a command that ends before it has read its input", () => {
  // Node 20 fails a write to a stream that its peer has ended; later versions fail fewer of them.
  for (const version of [LOWEST_NODE, "22.23.3", process.versions.node]) {
    test(`unread input does not affect a command's result (Node ${version})`, async (t) => {
      const provided = await provideNode(version);
      if (typeof provided === "string") {
        t.skip(provided);
        return;
      }
      const env = {
        LIBRARY: join(directory, "library/lib/node/client/index.js"),
        ADDRESS: `127.0.0.1:${agent.port}`,
        CREDENTIALS: agent.credentialsDir,
        SERVER_NAME,
      };
      const { stdout } = await execa(provided.node, ["program.mjs"], { cwd: directory, env, extendEnv: false });
      assert.deepEqual(stdout.split("\n"), [
        "ends at once: 3",
        "ends later: 4",
        "times out: 143 timed out",
        "writes much: 400000 bytes, 5",
      ]);
    });
  }
});
