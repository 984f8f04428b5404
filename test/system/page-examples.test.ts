import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { testDirectory } from "../fixtures/files.ts";
import { putGuestctl, startIssuedAgent } from "../node/guestctl/guestctl.ts";

const ROOT = join(import.meta.dirname, "../..");

/** Pages, and what the commands of their first example print together. */
const PAGES: readonly (readonly [page: string, prints: RegExp])[] = [
  ["docs/agent/files.md", /^mode = fast$/m],
  ["docs/agent/sessions.md", /^build\n[^]*compiled$/m],
  ["docs/agent/snapshots.md", /^degraded: /m],
  ["docs/agent/security-model.md", /^ *SVC_TLS_KEY_FILE=/m],
];

describe("the first example of a page", () => {
  for (const [page, prints] of PAGES)
    test(`the first example of ${page} works`, async () => {
      const [, block = ""] = /^```sh\n([^]*?)^```$/m.exec(readFileSync(join(ROOT, page), "utf8")) ?? [];
      await using directory = await testDirectory();
      await putGuestctl(directory.path);
      await mkdir(directory.at("site"));
      await mkdir(directory.at("guest"));
      await writeFile(directory.at("app.conf"), "mode = fast\n");
      // A program of the sandbox.
      await writeFile(directory.at("make"), "#!/bin/sh\necho compiled\n");
      await chmod(directory.at("make"), 0o755);
      const PATH = [directory.path, process.env["PATH"]].join(delimiter);
      await using agent = await startIssuedAgent({ env: { PATH } });
      const env = {
        PATH,
        GUESTCTL_ADDRESS: `127.0.0.1:${agent.port}`,
        GUESTCTL_CREDENTIALS: agent.credentialsDir,
      };
      const line = block.replaceAll(/(?<=[ :])\/srv/g, directory.at("guest"));
      const { all } = await execa("sh", ["-uc", line], { cwd: directory.path, env, all: true, reject: false });
      assert.match(all, prints, all);
    });
});
