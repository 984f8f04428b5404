import { copyFileSync, globSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { execa } from "execa";
import { NODE_ENGINES, NODE_REQUIREMENT } from "./node.ts";

/** The name that programs of the node side import. */
const CLIENT_PACKAGE = "guest-agent-client";

/** The packages that it imports; their versions are the project's. */
const DEPENDENCIES = ["@bufbuild/protobuf", "@grpc/grpc-js"] as const;
/**
 * What sandboxes and tests alone need, and load when they need it: the substrate's client, and what issues
 * certificates.
 */
const WHEN_NEEDED = ["@onkernel/hypeman", "@peculiar/x509", "reflect-metadata"] as const;

/** What programs import, by the name behind the package's. */
const ENTRIES = {
  ".": "./lib/node/client/index",
  "./sandboxes": "./lib/node/sandboxes/index",
  "./testing": "./lib/node/testing/index",
} as const;

/** A statement that refuses a Node for which a condition on its `major` and `minor` version holds. */
const refuse = (condition: string): string => `const [major, minor] = process.versions.node.split(".").map(Number);
if (${condition}) throw new Error("Node " + process.versions.node + " is too old; ${NODE_REQUIREMENT}");
`;

/** These cannot require() an ES module, and would fail with ERR_REQUIRE_ESM. */
const CANNOT_REQUIRE = "major < 20 || (major === 20 && minor < 19) || major === 21 || (major === 22 && minor < 12)";

/** Module that every entry imports first, so that an older Node does not fail at what it lacks. */
const CHECKED_FIRST = "supported-node";

/** Puts the check of Node's version before all that the entry of a path imports. */
function checkFirst(folder: string, path: string): void {
  const file = join(folder, `${path}.js`);
  const check = relative(dirname(file), join(folder, "lib", `${CHECKED_FIRST}.js`));
  writeFileSync(file, `import "${check}";\n${readFileSync(file, "utf8")}`);
}

interface Manifest {
  readonly version: string;
  readonly license: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
}

/**
 * Makes the package of the client library: modules and types, ready for `npm pack`. The folder appears when it is
 * complete; what was there before is replaced.
 */
export async function makeClientLibrary(root: string, folder: string): Promise<void> {
  const unfinished = `${folder}.unfinished`;
  rmSync(unfinished, { recursive: true, force: true });
  const lib = join(unfinished, "lib");
  mkdirSync(lib, { recursive: true });
  await compile(root, lib);
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
  // Without links to other documents, which are not in the package.
  writeFileSync(join(unfinished, "README.md"), page.replaceAll(/\[([^\]]+)\]\((?!https?:)[^)]+\)/g, "$1"));
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(dirname(folder), { recursive: true });
  renameSync(unfinished, folder);
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
 * The compiler renames the modules in code, but not in declarations. Drops imports for side effects from declarations,
 * which need none: such a package may not be installed.
 */
function nameCompiled(file: string): void {
  const text = readFileSync(file, "utf8").replaceAll(/^import "[^"]+";\n/gm, "");
  writeFileSync(file, text.replaceAll(/(from |import\()"(\.{1,2}\/[^"]+)\.ts"/g, '$1"$2.js"'));
}

/**
 * The same declarations as those of a CommonJS module. TypeScript lets a .cts file require no module that is declared
 * as an ES module (TS1479), though Node does.
 */
function nameForRequire(file: string): void {
  const text = readFileSync(file, "utf8");
  writeFileSync(
    file.replace(/\.ts$/, ".cts"),
    text.replaceAll(/(from |import\()"(\.{1,2}\/[^"]+)\.js"/g, '$1"$2.cjs"'),
  );
}

/**
 * An entry of the package, for import and for require(): the same module, as Node 20.19 and 22.12 take it. The one for
 * require() is a CommonJS module that passes it on, for tools that judge by names.
 */
function entryOf(path: string): object {
  return {
    import: { types: `${path}.d.ts`, default: `${path}.js` },
    require: { types: `${path}.d.cts`, default: `${path}.cjs` },
  };
}

/**
 * The same for the types of a program that is compiled for Node 10, which knows no `exports`; it runs on a Node that
 * does.
 */
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
    // The types name Node's own; a program in JavaScript needs none.
    peerDependencies: { "@types/node": ">=20", ...Object.fromEntries(WHEN_NEEDED.map((name) => [name, all[name]])) },
    peerDependenciesMeta: Object.fromEntries(["@types/node", ...WHEN_NEEDED].map((name) => [name, { optional: true }])),
  };
}
