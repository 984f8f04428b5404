import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { execa } from "execa";
import { startSocketAgent } from "../../fixtures/agent.ts";
import { type InstalledClient, installClient, machineNode } from "../../fixtures/client-package.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { provideNpm } from "../../fixtures/toolchains.ts";

const ROOT = join(import.meta.dirname, "../../..");
const PAGE = readFileSync(join(ROOT, "docs/node/client.md"), "utf8");
/** The last releases of the versions that the page names. */
const RELEASES: Readonly<Record<string, string>> = { "5.2": "5.2.2", "5.7": "5.7.3" };
const DENO = "2.9.6";

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(await startSocketAgent());
const machine = machineNode();

describe("the client library in other tools", { skip: typeof machine === "string" ? machine : false }, () => {
  let installed: InstalledClient;
  const { node, path } = typeof machine === "string" ? { node: "", path: "" } : machine;
  const connected = `import { connect } from "guest-agent-client";
const client = connect({ address: ${JSON.stringify(`unix:${agent.socketPath}`)}, token: ${JSON.stringify(agent.token)} });
`;

  before(async () => {
    installed = await installClient(directory, path);
    await writeFile(
      join(installed.directory, "program.ts"),
      `${connected}console.log((await client.health()).alive);\nclient.close();\n`,
    );
  });

  const [, least = "", skipping = ""] =
    /TypeScript\s+(\d\.\d)\s+or\s+later\s+\((\d\.\d)\s+with\s+`skipLibCheck`\)/.exec(PAGE) ?? [];
  test("the page names its least versions of TypeScript", () => {
    assert.deepEqual([RELEASES[least] !== undefined, RELEASES[skipping] !== undefined], [true, true], PAGE);
  });
  for (const [version, options] of [
    [least, []],
    [skipping, ["--skipLibCheck"]],
  ] as const) {
    test(`type-checks with TypeScript ${version}${options.map((option) => ` and ${option}`).join("")}`, async (t) => {
      const provided = await provideNpm("typescript", RELEASES[version] ?? "unknown");
      if (typeof provided === "string") {
        t.skip(provided);
        return;
      }
      const tsc = [node, join(provided.directory, "typescript/bin/tsc"), ...options];
      assert.equal(await installed.compile("nodenext", ["program.ts"], tsc), "");
    });
  }

  test("the library runs in an ES module bundle as documented", async () => {
    const [, command = ""] = /^(npx esbuild [\s\S]*?)\n```$/m.exec(PAGE) ?? [];
    const local = command.replace("npx esbuild", `'${join(ROOT, "node_modules/.bin/esbuild")}'`);
    await execa(local, { shell: true, cwd: installed.directory });
    const bundle = join(directory, "alone.mjs");
    await writeFile(bundle, await readFile(join(installed.directory, "program.mjs")));
    assert.equal((await execa(node, [bundle], { extendEnv: false })).stdout, "true");
  });

  test("Deno copies a directory from a sandbox", async (t) => {
    const provided = await provideNpm("deno", DENO);
    if (typeof provided === "string") {
      t.skip(provided);
      return;
    }
    const [source, target] = [join(directory, "source"), join(directory, "target")];
    await execa("sh", ["-c", 'mkdir -p "$1/sub" && echo inside > "$1/sub/file"', "sh", source]);
    const code = `${connected}console.log((await client.files.download(${JSON.stringify(source)}, ${JSON.stringify(target)})).files);
client.close();
`;
    await writeFile(join(installed.directory, "copy.mjs"), code);
    const deno = join(provided.directory, `@deno/linux-${process.arch}-glibc/deno`);
    const { stdout } = await execa(deno, ["run", "--allow-all", "--node-modules-dir=manual", "copy.mjs"], {
      cwd: installed.directory,
      env: { DENO_DIR: join(directory, "deno"), DENO_NO_UPDATE_CHECK: "1" },
    });
    assert.equal(stdout, "1");
    assert.equal(await readFile(join(target, "sub/file"), "utf8"), "inside\n");
  });
});
