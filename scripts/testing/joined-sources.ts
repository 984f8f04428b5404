import { chmodSync, copyFileSync, globSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { ADDON_FILE } from "../../src/agent/native/index.ts";
import { buildNative } from "../build-native.ts";
import { readyDescriptors } from "../package/agent/descriptors/plugin.ts";
import { bundle, COMMON, makeGuestctl, REQUIRE } from "../package/bundle.ts";
import { JOINED, SOURCES_VARIABLE } from "./compiled.ts";

const ROOT = join(import.meta.dirname, "../..");
/** Longer than any run takes. */
const LONGEST_RUN_MS = 24 * 60 * 60 * 1_000;

/**
 * Bundles the sources of each program for one run, which a run within it shares; disposing of the result removes them.
 * Tests start hundreds of agents and commands. A start takes 0.10 s of CPU from a bundle, and 0.20 s from the sources
 * (0.42 s without the cache of COMPILED_ONCE).
 */
export async function joinSources(): Promise<Disposable> {
  if (process.env[SOURCES_VARIABLE] !== undefined) return { [Symbol.dispose]: () => {} };
  removeKilled(join(ROOT, "dist"));
  // Not in the temporary folder: some machines mount it noexec, and load no addon from there.
  const folder = mkdtempSync(join(ROOT, "dist", ".test-sources-"));
  // Tests run agents as other users.
  chmodSync(folder, 0o755);
  await bundle(join(ROOT, "src/agent/main.ts"), join(folder, JOINED["agent/main.ts"]), [readyDescriptors()]);
  copyFileSync(buildNative(), join(folder, ADDON_FILE));
  await joinPackages(folder);
  await makeGuestctl(ROOT, join(folder, dirname(JOINED["node/guestctl/main.ts"])));
  process.env[SOURCES_VARIABLE] = folder;
  return { [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Removes the folders of runs that were killed from the folder of all that is built. */
function removeKilled(dist: string): void {
  for (const name of globSync(".test-sources-*", { cwd: dist })) {
    const folder = join(dist, name);
    const madeMs = statSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? Infinity;
    if (madeMs < Date.now() - LONGEST_RUN_MS) rmSync(folder, { recursive: true, force: true });
  }
}

const LIST = "packages.json";

/** Packages of some hundred files in all, which nearly every test file loads. */
const PACKAGES = [
  // The others' decorators need it.
  "reflect-metadata",
  "@bufbuild/protobuf",
  "@bufbuild/protobuf/codegenv2",
  "@bufbuild/protobuf/wire",
  "@bufbuild/protobuf/wkt",
  "@connectrpc/connect",
  "@connectrpc/connect/protocol-grpc",
  "@connectrpc/connect-node",
  "@grpc/grpc-js",
  "@onkernel/hypeman",
  "@peculiar/x509",
  "execa",
];

/**
 * Joins packages into a few modules in the folder, and writes a list there, each name with the URL that
 * compile-cache.mjs loads in its place. What imports the agent's client takes 0.15 s of CPU so, not 0.26, and a run
 * starts hundreds of such processes.
 */
async function joinPackages(folder: string): Promise<void> {
  const joined: Record<string, string> = {};
  const entries: string[] = [];
  for (const name of PACKAGES) {
    const entry = join(folder, `${entries.length}.js`);
    writeFileSync(entry, reexport(name, Object.keys((await import(name)) as object)));
    joined[name] = pathToFileURL(entry.replace(/js$/, "mjs")).href;
    entries.push(entry);
  }
  await build({
    ...COMMON,
    absWorkingDir: ROOT,
    entryPoints: entries,
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    splitting: true,
    target: "node26",
    format: "esm",
    keepNames: true,
    banner: REQUIRE,
  });
  writeFileSync(join(folder, LIST), JSON.stringify(joined));
}

/** Exports by name: an importer of a package that is no ES module needs the names. */
function reexport(name: string, exported: readonly string[]): string {
  const names = exported.filter((each) => each !== "module.exports");
  return `${names.length === 0 ? "import" : `export { ${names.join(", ")} } from`} ${JSON.stringify(name)};\n`;
}
