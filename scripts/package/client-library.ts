import { copyFileSync, globSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { execa } from "execa";
import { copyThreadModule } from "./bundle.ts";
import { NODE_ENGINES, NODE_REQUIREMENT } from "./node.ts";

/** The name that programs of the node side import. */
const CLIENT_PACKAGE = "guest-agent-client";

/** Packages that it imports, in the versions that the project uses. */
const DEPENDENCIES = ["@bufbuild/protobuf", "@grpc/grpc-js"] as const;
/**
 * Packages that only sandboxes and tests need, and that are loaded only then: the substrate's client, and libraries
 * that issue certificates.
 */
const WHEN_NEEDED = ["@onkernel/hypeman", "@peculiar/x509", "reflect-metadata"] as const;

/** What programs can import, by the name after the package's name. */
const ENTRIES = {
  ".": "./lib/node/client/index",
  "./sandboxes": "./lib/node/sandboxes/index",
  "./testing": "./lib/node/testing/index",
} as const;

/** Returns a statement that throws if a condition on the `major` and `minor` version of Node is true. */
const refuse = (condition: string): string => `const [major, minor] = process.versions.node.split(".").map(Number);
if (${condition}) throw new Error("Node " + process.versions.node + " is too old; ${NODE_REQUIREMENT}");
`;

/** These versions cannot require() an ES module; they would fail with ERR_REQUIRE_ESM. */
const CANNOT_REQUIRE = "major < 20 || (major === 20 && minor < 19) || major === 21 || (major === 22 && minor < 12)";

/**
 * The module that every entry imports first, so that an older Node gets a clear message instead of an error about a
 * missing feature.
 */
const CHECKED_FIRST = "supported-node";

/** Puts the check of Node's version before all other imports of an entry. */
function checkFirst(directory: string, path: string): void {
  const file = join(directory, `${path}.js`);
  const check = relative(dirname(file), join(directory, "lib", `${CHECKED_FIRST}.js`));
  writeFileSync(file, `import "${check}";\n${readFileSync(file, "utf8")}`);
}

interface Manifest {
  readonly version: string;
  readonly license: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
}

/**
 * Builds the package of the client library: modules and types, ready for `npm pack`. The directory appears only when it
 * is complete, and replaces the earlier one.
 */
export async function makeClientLibrary(root: string, directory: string): Promise<void> {
  const unfinished = `${directory}.unfinished`;
  rmSync(unfinished, { recursive: true, force: true });
  const lib = join(unfinished, "lib");
  mkdirSync(lib, { recursive: true });
  await compile(root, lib);
  writeFileSync(join(lib, "node/tar/thread/entry-point.js"), await copyThreadModule(root));
  for (const types of globSync("**/*.d.ts", { cwd: lib })) {
    nameCompiled(join(lib, types));
    nameForRequire(join(lib, types));
  }
  for (const path of Object.values(ENTRIES))
    writeFileSync(
      join(unfinished, `${path}.cjs`),
      `${refuse(CANNOT_REQUIRE)}module.exports = require("./${basename(path)}.js");\n`,
    );
  writeFileSync(join(lib, `${CHECKED_FIRST}.js`), refuse("major < 20"));
  writeFileSync(join(lib, `${CHECKED_FIRST}.d.ts`), "export {};\n");
  for (const path of Object.values(ENTRIES)) checkFirst(unfinished, path);
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Manifest;
  writeFileSync(join(unfinished, "package.json"), `${JSON.stringify(manifestOf(manifest), null, 2)}\n`);
  copyFileSync(join(root, "LICENSE"), join(unfinished, "LICENSE"));
  const page = readFileSync(join(root, "docs/node/client.md"), "utf8");
  // The README loses its links to other documents, which are not part of the package.
  writeFileSync(join(unfinished, "README.md"), page.replaceAll(/\[([^\]]+)\]\((?!https?:)[^)]+\)/g, "$1"));
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(dirname(directory), { recursive: true });
  renameSync(unfinished, directory);
}

async function compile(root: string, lib: string): Promise<void> {
  const project = join(root, "scripts/package/client-library.tsconfig.json");
  const result = await execa("tsc", ["-p", project, "--outDir", lib], {
    preferLocal: true,
    localDir: root,
    all: true,
    reject: false,
  });
  if (result.failed) throw new Error(`the client library does not compile:\n${result.all}`);
}

/**
 * The compiler renames imported modules in code, but not in declarations. Also removes imports for side effects from
 * declarations: they are not needed there, and such a package may not be installed.
 */
function nameCompiled(file: string): void {
  const text = readFileSync(file, "utf8").replaceAll(/^import "[^"]+";\n/gm, "");
  writeFileSync(file, text.replaceAll(/(from |import\()"(\.{1,2}\/[^"]+)\.ts"/g, '$1"$2.js"'));
}

/**
 * Copies the declarations for require(). In a .cts file TypeScript does not allow require() of a module that is
 * declared as an ES module (TS1479), although Node does.
 */
function nameForRequire(file: string): void {
  const text = readFileSync(file, "utf8");
  writeFileSync(
    file.replace(/\.ts$/, ".cts"),
    text.replaceAll(/(from |import\()"(\.{1,2}\/[^"]+)\.js"/g, '$1"$2.cjs"'),
  );
}

/**
 * The entry of a package's export for import and for require(). Both load the same module, which Node supports since
 * 20.19 and 22.12. The file for require() is a CommonJS module that re-exports the ES module, for tools that decide by
 * the file's name.
 */
function entryOf(path: string): object {
  return {
    import: { types: `${path}.d.ts`, default: `${path}.js` },
    require: { types: `${path}.d.cts`, default: `${path}.cjs` },
  };
}

/** The entries for programs whose TypeScript is set to Node 10 and therefore ignores `exports`. */
function forNode10(): object {
  const { ".": main, ...others } = ENTRIES;
  const types = Object.entries(others).map(([name, path]) => [name.replace("./", ""), [`${path}.d.ts`]] as const);
  return { main: `${main}.js`, types: `${main}.d.ts`, typesVersions: { "*": Object.fromEntries(types) } };
}

function manifestOf({ version, license, dependencies, devDependencies }: Manifest): object {
  const all = { ...devDependencies, ...dependencies };
  return {
    name: CLIENT_PACKAGE,
    version,
    description: "The node side of the guest agent: commands, files, hooks and restore duties of a sandbox over gRPC.",
    license,
    type: "module",
    engines: { node: NODE_ENGINES },
    sideEffects: false,
    exports: {
      ...Object.fromEntries(Object.entries(ENTRIES).map(([name, path]) => [name, entryOf(path)])),
      "./package.json": "./package.json",
    },
    ...forNode10(),
    files: ["lib"],
    dependencies: Object.fromEntries(DEPENDENCIES.map((name) => [name, dependencies[name]])),
    // The types refer to Node's own types; a program in JavaScript needs none.
    peerDependencies: { "@types/node": ">=20", ...Object.fromEntries(WHEN_NEEDED.map((name) => [name, all[name]])) },
    peerDependenciesMeta: Object.fromEntries(["@types/node", ...WHEN_NEEDED].map((name) => [name, { optional: true }])),
  };
}
