import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { COMMON, REQUIRE } from "../package/bundle.ts";

const ROOT = join(import.meta.dirname, "../..");
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
export async function joinPackages(folder: string): Promise<void> {
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
