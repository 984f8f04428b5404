import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { COMMON, REQUIRE } from "../package/bundle.ts";

const ROOT = join(import.meta.dirname, "../..");
const DIST = join(ROOT, "dist");
const PREFIX = ".test-packages-";
const LIST = "packages.json";
/** Longer than any run takes. */
const UNUSED_MS = 24 * 60 * 60 * 1_000;

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
 * Joins packages into a few modules, once for the same package-lock.json. Gives the path of a list: each name with the
 * URL that compile-cache.mjs loads in its place. What imports the agent's client takes 0.15 s of CPU so, not 0.26, and
 * a run starts hundreds of such processes.
 */
export async function joinPackages(): Promise<string> {
  const hash = createHash("sha256");
  for (const file of [join(ROOT, "package-lock.json"), import.meta.filename]) hash.update(readFileSync(file));
  const folder = join(DIST, `${PREFIX}${hash.digest("hex").slice(0, 16)}`);
  if (existsSync(folder)) {
    // Marks it as in use: removeUnused leaves it.
    utimesSync(folder, new Date(), new Date());
    return join(folder, LIST);
  }
  mkdirSync(DIST, { recursive: true });
  const unfinished = mkdtempSync(join(DIST, PREFIX));
  try {
    await joinInto(unfinished);
    const entries = PACKAGES.map((name, index) => [name, pathToFileURL(join(folder, `${index}.mjs`)).href]);
    writeFileSync(join(unfinished, LIST), JSON.stringify(Object.fromEntries(entries)));
    // Tests of other users read it too.
    chmodSync(unfinished, 0o755);
    renameSync(unfinished, folder);
  } catch (error) {
    rmSync(unfinished, { recursive: true, force: true });
    // Another run was faster.
    if (!existsSync(folder)) throw error;
  }
  return join(folder, LIST);
}

/**
 * Removes the folders of runs that were killed, and the packages of an older package-lock.json, from the folder of all
 * that is built. A run may still load what was used within a day.
 */
export function removeUnused(dist: string): void {
  for (const name of globSync(".test-{packages,sources}-*", { cwd: dist })) {
    const folder = join(dist, name);
    const usedMs = statSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? Infinity;
    if (usedMs < Date.now() - UNUSED_MS) rmSync(folder, { recursive: true, force: true });
  }
}

async function joinInto(folder: string): Promise<void> {
  const entries: string[] = [];
  for (const name of PACKAGES) {
    const entry = join(folder, `${entries.length}.js`);
    writeFileSync(entry, reexport(name, Object.keys((await import(name)) as object)));
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
}

/** Exports by name: an importer of a package that is no ES module needs the names. */
function reexport(name: string, exported: readonly string[]): string {
  const names = exported.filter((each) => each !== "module.exports");
  return `${names.length === 0 ? "import" : `export { ${names.join(", ")} } from`} ${JSON.stringify(name)};\n`;
}
