import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { execa } from "execa";
import { type InstalledClient, installClient, machineNode } from "../../fixtures/client-package.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { standaloneDirectory } from "../../fixtures/bundles.ts";

const ROOT = join(import.meta.dirname, "../../..");
const machine = machineNode();
const PAGE = readFileSync(join(ROOT, "docs/node/client.md"), "utf8");
/** The page's example of five lines. */
const [, EXAMPLE = ""] = /^```ts\n(import [^\n]*guest-agent-client\/testing[\s\S]*?)^```$/m.exec(PAGE) ?? [];

const directory = forAllTests(await testDirectory()).path;

describe(
  "an agent for tests, of the installed package",
  { skip: typeof machine === "string" ? machine : false },
  () => {
    const { node, path } = typeof machine === "string" ? { node: "", path: "" } : machine;
    let installed: InstalledClient;
    before(async () => {
      installed = await installClient(directory, path);
      await writeFile(join(installed.directory, "example.ts"), EXAMPLE);
      await writeFile(
        join(installed.directory, "required.cts"),
        `import { startTestAgent, type TestAgent } from "guest-agent-client/testing";
       export const start: () => Promise<TestAgent> = () => startTestAgent();`,
      );
    });

    const run = async (agent?: string): Promise<string> => {
      const env = { PATH: path, ...(agent !== undefined && { GUEST_AGENT: agent }) };
      const { all } = await execa(node, ["example.js"], {
        cwd: installed.directory,
        extendEnv: false,
        env,
        all: true,
        reject: false,
      });
      return all;
    };

    test("startTestAgent type-checks in strict ESM and CommonJS programs", async () => {
      assert.equal(await installed.compile("node16", ["*.cts"]), "");
      assert.equal(await installed.compile(), "");
    });

    test("startTestAgent reports a missing agent or credential package with a next step", async () => {
      assert.match(
        await run(),
        /the program guest-agent was not found: set GUEST_AGENT or the option "agent" to its path/,
      );
      assert.match(
        await run(directory),
        /the variable GUEST_AGENT is .*, which is a directory; set it to the program in this directory/,
      );
      const agent = join(standaloneDirectory(), "guest-agent");
      assert.match(
        await run(agent),
        /cannot issue certificates without two packages: npm install @peculiar\/x509 reflect-metadata/,
      );
    });

    test("the documented example of startTestAgent runs with the built agent", async () => {
      for (const name of ["@peculiar", "reflect-metadata"]) {
        await symlink(join(ROOT, "node_modules", name), join(installed.directory, "node_modules", name));
      }
      const built = standaloneDirectory();
      assert.equal(await run(join(built, "guest-agent")), "0 hello\n");
      await symlink(built, join(installed.directory, "node_modules", `linux-${process.arch}`));
      assert.equal(await run(), "0 hello\n");
    });
  },
);
