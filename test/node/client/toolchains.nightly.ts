import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { execa } from "execa";
import { startAgent, startSocketAgent } from "../../fixtures/agent.ts";
import { type InstalledClient, installClient, machineNode } from "../../fixtures/client-package.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { optionsFor } from "../../fixtures/guest-client.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { provideNpm } from "../../fixtures/toolchains.ts";

const ROOT = join(import.meta.dirname, "../../..");
const PAGE = readFileSync(join(ROOT, "docs/node/client.md"), "utf8");
/** The last releases of the versions that the page names. */
const RELEASES: Readonly<Record<string, string>> = { "5.2": "5.2.2", "5.7": "5.7.3" };
const ESBUILD = join(ROOT, "node_modules/.bin/esbuild");
const CPU = process.arch === "x64" ? { bun: "x64", deno: "x64" } : { bun: "aarch64", deno: "arm64" };
/** Other runtimes: their package of npm, its version, the program in node_modules, and its arguments. */
const RUNTIMES = [
  ["bun", "1.4.5", `@oven/bun-linux-${CPU.bun}/bin/bun`, []],
  ["deno", "2.9.6", `@deno/linux-${CPU.deno}-glibc/deno`, ["run", "--allow-all", "--node-modules-dir=manual"]],
] as const;

/** Name of the bundle in the program's directory, or what is missing. */
type Bundle = (directory: string) => Promise<string | { readonly missing: string }>;

const esbuild =
  (name: string, ...options: string[]): Bundle =>
  async (cwd) => {
    await execa(ESBUILD, ["programs.js", "--bundle", "--platform=node", `--outfile=${name}`, ...options], { cwd });
    return name;
  };

/** Runs code for a bundler that npm provides: `need` is the `require` of its directory. */
async function withPackages(
  cwd: string,
  provided: Awaited<ReturnType<typeof provideNpm>>,
  code: string,
): Promise<string | undefined> {
  if (typeof provided === "string") return provided;
  const beside = JSON.stringify(join(provided.directory, "any.js"));
  const need = `const need = (await import("node:module")).createRequire(${beside});\n`;
  await execa(process.execPath, ["--input-type=module", "--eval", need + code], { cwd });
  return undefined;
}

const webpack: Bundle = async (cwd) => {
  const output = { path: cwd, filename: "webpack.cjs" };
  // Into one file: webpack otherwise makes further ones of dynamic imports.
  const parser = { javascript: { dynamicImportMode: "eager" } };
  const input = { entry: "./programs.js", mode: "production", target: "node20", context: cwd };
  const options = { ...input, output, module: { parser } };
  const code = `need("webpack")(${JSON.stringify(options)}, (error, stats) => {
    if (error || stats.hasErrors()) throw error ?? new Error(stats.toString());
  });`;
  const missing = await withPackages(cwd, await provideNpm("webpack", "5.113.0"), code);
  return missing === undefined ? output.filename : { missing };
};

const rollup: Bundle = async (cwd) => {
  const plugins = ["commonjs@29.0.3", "json@6.1.0", "node-resolve@16.0.3"].map((name) => `@rollup/plugin-${name}`);
  const code = `const { default: commonjs } = need("@rollup/plugin-commonjs");
    const { default: json } = need("@rollup/plugin-json");
    const { default: resolve } = need("@rollup/plugin-node-resolve");
    const plugins = [resolve({ preferBuiltins: true, exportConditions: ["node"] }), commonjs(), json()];
    const bundle = await need("rollup").rollup({ input: "programs.js", plugins });
    await bundle.write({ file: "rollup.mjs", format: "es", inlineDynamicImports: true });`;
  const missing = await withPackages(cwd, await provideNpm("rollup", "4.68.8", plugins), code);
  return missing === undefined ? "rollup.mjs" : { missing };
};

const BUNDLES: readonly (readonly [bundler: string, format: string, bundle: Bundle])[] = [
  [
    "esbuild",
    "an ES module",
    esbuild(
      "esbuild.mjs",
      "--format=esm",
      "--banner:js=import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
    ),
  ],
  ["esbuild", "a CommonJS", esbuild("esbuild.cjs", "--format=cjs")],
  ["webpack", "a CommonJS", webpack],
  ["rollup", "an ES module", rollup],
];

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(await startSocketAgent());
const gone = await startAgent();
await gone[Symbol.asyncDispose]();
/** Variables of runtime-programs.ts. */
const variables = { OPTIONS: JSON.stringify(optionsFor(agent)), GONE: JSON.stringify(optionsFor(gone)) };
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
    const programs = await readFile(join(import.meta.dirname, "runtime-programs.ts"), "utf8");
    await writeFile(
      join(installed.directory, "programs.ts"),
      programs.replace("../../../src/node/client/index.ts", "guest-agent-client"),
    );
    assert.equal(await installed.compile("nodenext", ["programs.ts"]), "");
  });

  const [, least = "", skipping = ""] =
    /TypeScript\s+(\d\.\d)\s+or\s+later\s+\((\d\.\d)\s+with\s+`skipLibCheck`\)/.exec(PAGE) ?? [];
  test("docs/node/client.md states the oldest supported versions of TypeScript", () => {
    assert.deepEqual([RELEASES[least] !== undefined, RELEASES[skipping] !== undefined], [true, true], PAGE);
  });
  for (const [version, options] of [
    [least, []],
    [skipping, ["--skipLibCheck"]],
  ] as const) {
    test(`the library type-checks with TypeScript ${[version, ...options].join(" and ")}`, async (t) => {
      const provided = await provideNpm("typescript", RELEASES[version] ?? "unknown");
      if (typeof provided === "string") {
        t.skip(provided);
        return;
      }
      const tsc = [node, join(provided.directory, "typescript/bin/tsc"), ...options];
      assert.equal(await installed.compile("nodenext", ["program.ts"], tsc), "");
    });
  }

  test("the documented esbuild command bundles the library into a working ES module", async () => {
    const [, command = ""] = /^(npx esbuild [\s\S]*?)\n```$/m.exec(PAGE) ?? [];
    const local = command.replace("npx esbuild", `'${ESBUILD}'`);
    await execa(local, { shell: true, cwd: installed.directory });
    assert.equal(await alone("program.mjs"), "true");
  });

  /** What runtime-programs.ts prints. */
  const PRINTED = `tests ["ok 1\\nok 2\\n","sh failed with exit code 1: not ok 3","ABORT_ERR"]
project [1,"SOURCE\\n",["dist","src"]]
terminal [3,true]
pool [20,"JOB 19"]`;

  const programs = async (file: string, ...args: string[]): Promise<string> => {
    const env = { ...variables, DENO_DIR: join(directory, "deno"), DENO_NO_UPDATE_CHECK: "1", HOME: directory };
    return (await execa(file, args, { cwd: installed.directory, env })).stdout;
  };

  test("example programs that use the client run on the installed Node version", async () => {
    assert.equal(await programs(node, "programs.js"), PRINTED);
  });

  for (const [name, version, file, args] of RUNTIMES) {
    test(`example programs that use the client run with ${name} ${version}`, async (t) => {
      const provided = await provideNpm(name, version);
      if (typeof provided === "string") {
        t.skip(provided);
        return;
      }
      assert.equal(await programs(join(provided.directory, file), ...args, "programs.js"), PRINTED);
    });
  }

  test("the library type-checks with `moduleResolution` set to `bundler`", async () => {
    assert.equal(await installed.compile("bundler", ["program.ts", "programs.ts"]), "");
  });

  for (const [bundler, format, bundle] of BUNDLES) {
    test(`example programs that use the client run in ${format} bundle of ${bundler}`, async (t) => {
      const program = await bundle(installed.directory);
      if (typeof program === "string") assert.equal(await alone(program), PRINTED);
      else t.skip(program.missing);
    });
  }

  /** Runs a bundle where there is no node_modules. */
  async function alone(name: string): Promise<string> {
    const program = join(directory, name);
    await writeFile(program, await readFile(join(installed.directory, name)));
    return (await execa(node, [program], { extendEnv: false, env: { ...variables, PATH: path } })).stdout;
  }
});
