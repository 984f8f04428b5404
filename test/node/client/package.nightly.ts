import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { before, describe, test } from "node:test";
import { execa } from "execa";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { type InstalledClient, installClient, machineNode } from "../../fixtures/client-package.ts";
import { startSocketAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";

const PUBLINT = "publint@0.3.25";
const ATTW = "@arethetypeswrong/cli@0.18.5";
const ROOT = join(import.meta.dirname, "../../..");
const machine = machineNode();
const examples = ["README.md", "docs/node/client.md"].flatMap((name) =>
  examplesOf(readFileSync(join(ROOT, name), "utf8")),
);

interface Example {
  /** The heading above it, and its number there. */
  readonly title: string;
  readonly code: string;
}

/**
 * The examples in TypeScript. One that does not connect continues the first, before its client is closed. The one about
 * an agent for tests needs packages that are not installed here: test/node/testing/package.nightly.ts.
 */
function examplesOf(document: string): Example[] {
  const first = /```ts\n([\s\S]*?)```/.exec(document)?.[1] ?? "";
  return document.split(/^## /m).flatMap((section) => {
    const heading = section.split("\n")[0] ?? "";
    if (section.includes("guest-agent-client/testing")) return [];
    return Array.from(section.matchAll(/^```ts\n([\s\S]*?)^```$/gm), ([, code = ""], index) => ({
      title: `${heading} ${index + 1}`,
      code: code.includes("connect({") ? code : first.replace("client.close();\n", `${code}client.close();\n`),
    }));
  });
}

/** The output that some of them must have. */
const OUTPUTS: readonly (readonly [title: string, output: RegExp])[] = [
  ["Call it from TypeScript 1", /^0 HELLO SANDBOX\nfrozen (?:true|false)\nrestored true \d+$/m],
  ["# Call it from TypeScript 1", /^0 Linux$/m],
  ["Connect 1", /^true true \d{4}-\d\d-\d\dT\S+Z$/m],
  ["Connect 2", /^true$/m],
  ["Connect 3", /^true$/m],
  ["Run commands 1", /^3 input oops$/m],
  ["Run commands 2", /^sh failed with exit code 3: no disk 3 undefined$/m],
  ["Run commands 3", /^building\ndone$/m],
  ["Run commands 4", /^apple\npear\n\{[\s\S]*outputComplete: true/m],
  ["Run commands 5", /^one\n+two$/m],
  ["Run commands 6", /40 120[\s\S]*^5$/m],
  ["Run commands 7", /^starting\nready$/m],
  ["Run commands 8", /^process \d+\n\{\n {2}exitCode: 143,\n {2}signal: 'SIGTERM',$/m],
  ["Run commands 9", /^build true (?:undefined|0)\nstep 1\nstep 2\nstep 3\n0$/m],
  ["Run commands 10", /^SIGHUP true$/m],
  // Its workload prints nothing.
  ["Run commands 11", /^0 Linux\n+$/],
  ["Run commands 12", /^\d+ \[ '.+$/m],
  ["Files 1", /^first\n\nrst\nnotes file 6 640 \d{4}-\d\d-\d\dT\S+Z\nfalse$/m],
  [
    "Files 2",
    /^new\n\[ 'notes', 'hosts', 'old', 'current' \]\nnotes file 6 undefined\n[\s\S]*^current symlink 3 undefined$/m,
  ],
  ["Files 3", /^2 0 1$/m],
  ["Files 4", /^ready {2}3\n(?:created|modified|closed) test\.sh 3$/m],
  ["Usage 1", /^\d+ \d+ \d+ \d+$/m],
  ["Hooks and restore 1", /^true false 0 at rest/m],
  ["Hooks and restore 2", /^false true /m],
  ["Errors 1", /^NOT_FOUND EXEC_NOT_FOUND \{/m],
  ["Giving up, and trying again 1", /^AbortError no longer wanted\ntrue$/m],
];

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(
  await startSocketAgent({
    process: { args: ["sleep", "100000"], output: { keep: {} } },
    hooks: { pre_snapshot: { args: ["echo", "at rest"] } },
  }),
);

/**
 * An example with the places and names of this test. The agent has the clock of this machine, which no test may set, so
 * the restore steps leave it alone.
 */
function runnable(code: string): string {
  return code
    .replaceAll("/srv/example", join(directory, "srv"))
    .replace("./creds", agent.credentialsDir)
    .replace('"10.0.0.7:7071",', `"127.0.0.1:${agent.port}", serverName: "${SERVER_NAME}",`)
    .replace("completeRestore()", "completeRestore({ hostTime: false })");
}

describe("the package of the client library", { skip: typeof machine === "string" ? machine : false }, () => {
  let installed: InstalledClient;
  const { node, path } = typeof machine === "string" ? { node: "", path: "" } : machine;

  before(async () => {
    installed = await installClient(directory, path);
    await Promise.all(
      examples.map(({ code }, index) => writeFile(join(installed.directory, `example-${index}.ts`), runnable(code))),
    );
    const bridge = agent.bridge.map((word) => `'${word}'`).join(" ");
    await writeFile(join(directory, "docker"), `#!/bin/sh\nexec ${bridge}\n`, { mode: 0o755 });
  });

  test("the package contains only modules, types, license and documentation", async () => {
    const kinds = installed.packed.filter((file) => !/^lib\/.*\.(?:js|d\.c?ts)$/.test(file));
    const forRequire = ["client", "sandboxes", "testing"].map((entry) => `lib/node/${entry}/index.cjs`);
    assert.deepEqual(kinds, ["LICENSE", "README.md", ...forRequire, "package.json"]);
    const declared = installed.packed.filter(
      (file) => file.endsWith(".js") && !installed.packed.includes(file.replace(/js$/, "d.ts")),
    );
    assert.deepEqual(declared, []);
    const manifest = JSON.parse(
      await readFile(join(installed.directory, "node_modules/guest-agent-client/package.json"), "utf8"),
    ) as Record<string, unknown>;
    assert.deepEqual(Object.keys(manifest["dependencies"] as object), ["@bufbuild/protobuf", "@grpc/grpc-js"]);
  });

  test("publint and arethetypeswrong report no problem in the package", async () => {
    const [tarball = ""] = globSync(join(installed.directory, "*.tgz"));
    const options = { cwd: directory, env: { PATH: path }, timeout: 250_000 } as const;
    const publint = await execa("npx", ["--yes", PUBLINT, tarball, "--strict"], options);
    assert.match(publint.stdout, /All good!/);
    // Into a file: attw ends before a pipe has taken all.
    const report = join(directory, "report.json");
    const words = ["--yes", ATTW, tarball, "--format", "json"];
    await execa("sh", ["-c", 'exec npx "$@" > "$0"', report, ...words], { ...options, reject: false });
    const { analysis, problems } = JSON.parse(await readFile(report, "utf8")) as {
      readonly analysis: { readonly entrypoints: Readonly<Record<string, object>> };
      readonly problems: object;
    };
    const entrypoints = [".", "./package.json", "./sandboxes", "./testing"];
    assert.deepEqual(Object.keys(analysis.entrypoints).toSorted(), entrypoints);
    assert.deepEqual(problems, {});
  });

  test("the package contains every file listed under `exports` in package.json", async () => {
    const { exports } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as {
      exports: Record<"./client" | "./sandboxes" | "./testing", Record<"types" | "default", string>>;
    };
    for (const file of (["./client", "./sandboxes", "./testing"] as const).flatMap((at) =>
      Object.values(exports[at]),
    )) {
      assert.ok(installed.packed.includes(file.replace("./dist/client/", "")), file);
    }
  });

  test("without optional packages, the sandboxes module compiles, and fails with MISSING_PACKAGE", async () => {
    const program = join(installed.directory, "sandboxes.ts");
    const code = `import { connectHypeman, SandboxError, Sandboxes } from "guest-agent-client/sandboxes";
const said = (error: unknown): void => console.log(error instanceof SandboxError ? error.code : error, String(error));
await connectHypeman({ apiToken: "any" }).catch(said);
const open: (options: Parameters<typeof Sandboxes.open>[0]) => Promise<Sandboxes> = (options) => Sandboxes.open(options);
await open({ substrate: {} as never, stateDirectory: ${JSON.stringify(join(directory, "state"))}, nodeId: "n" }).catch(said);
`;
    await writeFile(program, code);
    assert.equal(await installed.compile(), "");
    const { stdout } = await execa(node, [program.replace(/ts$/, "js")], { extendEnv: false, env: { PATH: path } });
    assert.match(stdout, /^MISSING_PACKAGE .*npm install @onkernel\/hypeman$/m);
    const { stdout: version } = await execa(node, ["-p", "process.versions.node"]);
    const [major = 0, minor = 0] = version.split(".").map(Number);
    const hasSqlite = major > 22 || (major === 22 && minor >= 13);
    assert.equal(/^MISSING_PACKAGE .*Node 22\.13 or later/m.test(stdout), !hasSqlite, stdout);
    await rm(program);
  });

  test("the package and its examples type-check in strict mode", async () => {
    assert.ok(examples.length >= 14, `${examples.length} examples`);
    assert.equal(await installed.compile(), "");
    const wrong = join(installed.directory, "wrong.ts");
    await writeFile(wrong, 'import { connect } from "guest-agent-client";\nconnect({ address: "unix:/x" });\n');
    assert.match(await installed.compile(), /wrong\.ts.*token/s);
    await rm(wrong);
  });

  test("`require` and `import` of the package load the same module", async () => {
    const program = join(installed.directory, "both.cjs");
    const code = `import("guest-agent-client").then((imported) =>
  console.log(require("guest-agent-client").GuestError === imported.GuestError));`;
    await writeFile(program, code);
    const { stdout } = await execa(node, [program], { cwd: installed.directory, extendEnv: false });
    assert.equal(stdout, "true");
    await rm(program);
  });

  for (const [index, { title, code }] of examples.entries()) {
    test(`the example "${title}" runs on this machine's Node`, async () => {
      const result = await execa(node, [join(installed.directory, `example-${index}.js`)], {
        extendEnv: false,
        all: true,
        reject: false,
        timeout: 500_000,
        env: {
          PATH: `${directory}${delimiter}${path}`,
          CREDENTIALS: agent.credentialsDir,
          ADDRESS: `127.0.0.1:${agent.port}`,
          SERVER_NAME,
          SOCKET: agent.socketPath,
          TOKEN: agent.token,
        },
      });
      assert.equal(result.exitCode, 0, `${code}\n${result.all}`);
      const expected = OUTPUTS.find(([name]) => name === title)?.[1];
      assert.match(result.stdout, expected ?? assert.fail(`nothing is expected of "${title}"`));
    });
  }
});
