import type { Source } from "./sources.ts";

/** A rule over all source files. Returns one line per violation. */
export type Rule = (sources: readonly Source[]) => string[];

type Layers = ReadonlyMap<string, number>;

/** The layer of each module, from the lowest up. */
const layersOf = (...layers: readonly string[]): Layers =>
  new Map(layers.flatMap((names, layer) => names.split(" ").map((name) => [name, layer] as const)));

/**
 * The programs of src/, with the layer of each of their modules. A file imports only modules of lower layers, not even
 * those of its own layer. src/shared has no layers: every module except domain may import it. A package (guestctl,
 * sandboxes) consists of modules with layers of their own and one common entry point; its files outside of them belong
 * to the package itself.
 */
const PROGRAMS: ReadonlyMap<string, Layers> = new Map([
  [
    "agent",
    layersOf(
      "domain",
      "session native internals",
      "config platform",
      "listening http2 workload exec files hooks health restore tunnel usage processes check",
      "rpc",
      "server workload-service probe",
      "boot",
      "main",
    ),
  ],
  [
    "node",
    layersOf(
      "tar",
      "client credentials",
      "sandboxes/substrate testing",
      "sandboxes/state",
      "sandboxes/operations",
      "sandboxes/api",
      "sandboxes",
      "guestctl/ending",
      "guestctl/cli",
      "guestctl/verbose",
      "guestctl/sandbox",
      "guestctl/connection",
      "guestctl/copy guestctl/terminal",
      "guestctl/commands",
      "guestctl",
    ),
  ],
  [
    "shared",
    layersOf(
      "errors field-writer gen make-directory patterns ports printable sparse-file text transports tree-items version",
    ),
  ],
]);

/** Modules that only the named modules may import. */
const IMPORTERS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ["sandboxes", new Set(["guestctl"])],
  ["testing", new Set()],
  ["config", new Set(["boot"])],
  ["platform", new Set(["boot"])],
  ["internals", new Set(["http2", "listening", "server", "platform"])],
  ["native", new Set(["platform", "files", "boot", "main"])],
  ["gen", new Set(["config", "rpc", "server", "workload-service", "client", "guestctl", "tree-items"])],
  ["field-writer", new Set(["rpc", "client", "tree-items"])],
  ["tree-items", new Set(["rpc", "client"])],
  ["version", new Set(["main", "boot", "server", "client", "guestctl"])],
]);

/** The program that a file of src/ belongs to, or "shared". */
function programOf(path: string): string {
  return path.split("/")[1] ?? "";
}

/** Modules that consist of modules. */
const PACKAGES: ReadonlySet<string> = new Set(["guestctl", "sandboxes"]);

/** The first directory of a file's path in the program, or the file's own name if there is none. */
function outerModuleOf(path: string): string {
  return (path.split("/")[2] ?? "").replace(/\.ts$/, "");
}

/** The module of a file of src/. In a package, the directory inside the package. */
function moduleOf(path: string): string {
  const outer = outerModuleOf(path);
  const [inner = "", ...deeper] = path.split("/").slice(3);
  return PACKAGES.has(outer) && deeper.length > 0 ? `${outer}/${inner}` : outer;
}

function mayImport(from: string, to: string): boolean {
  if (moduleOf(from) === moduleOf(to)) return true;
  const importers = IMPORTERS.get(outerModuleOf(to));
  const isWithin = outerModuleOf(from) === outerModuleOf(to);
  if (!isWithin && importers !== undefined && !importers.has(outerModuleOf(from))) return false;
  if (programOf(to) === "shared") return moduleOf(from) !== "domain";
  const layerOf = (path: string): number => PROGRAMS.get(programOf(path))?.get(moduleOf(path)) ?? 0;
  return layerOf(to) < layerOf(from);
}

/** Calls `complaint` for every import of one project file by another. */
function eachImport(sources: readonly Source[], complaint: (from: string, to: string) => string | undefined): string[] {
  return sources.flatMap(({ path, files }) =>
    files.map((file) => complaint(path, file)).filter((line) => line !== undefined),
  );
}

const knownModules: Rule = (sources) => {
  const unknown = sources.filter(({ path }) => PROGRAMS.get(programOf(path))?.has(moduleOf(path)) !== true);
  return [...new Set(unknown.map(({ path }) => `${placeOf(path)} is not a known module`))];
};

const twoPrograms: Rule = (sources) =>
  eachImport(sources, (from, to) => {
    const [program, other] = [programOf(from), programOf(to)];
    if (!to.startsWith("src/") || program === other || other === "shared") return undefined;
    return `${from} must not import ${to}: ${program} must not depend on ${other}`;
  });

const layerOrder: Rule = (sources) =>
  eachImport(sources, (from, to) => {
    const elsewhere = programOf(from) !== programOf(to) && programOf(to) !== "shared";
    if (!to.startsWith("src/") || elsewhere || mayImport(from, to)) return undefined;
    return `${from} must not import ${to}: ${moduleOf(from)} may not import ${moduleOf(to)}`;
  });

/** Files that load later than the rest of their module: others import them with import(). */
const LOADED_LATER: ReadonlySet<string> = new Set([
  "src/agent/files/calls/directories.ts",
  "src/agent/files/calls/watch.ts",
  "src/agent/server/warm-up.ts",
  "src/agent/rpc/handlers/serve.ts",
  "src/agent/platform/guest-facts.ts",
  "src/agent/platform/guest-usage.ts",
  "src/agent/platform/session-processes.ts",
  "src/agent/platform/sockets.ts",
]);

/** Whether the file is in a module, which others import only through its entry point. src/shared has none. */
function isInModule(path: string): boolean {
  return /^src\/(?!shared\/)[^/]+\/[^/]+\//.test(path);
}

const placeOf = (path: string): string => `src/${programOf(path)}/${moduleOf(path)}`;

/** Code outside of a module imports it only through its index.ts, and code outside of a package through the package's. */
const entryPoints: Rule = (sources) =>
  eachImport(sources, (from, to) => {
    if (!isInModule(to) || placeOf(from) === placeOf(to) || LOADED_LATER.has(to)) return undefined;
    const outer = `src/${programOf(to)}/${outerModuleOf(to)}`;
    const place = from.startsWith(`${outer}/`) ? placeOf(to) : outer;
    if (to === `${place}/index.ts`) return undefined;
    return `${from} must import ${place} through its index.ts, not ${to}`;
  });

const loadedLater: Rule = (sources) =>
  sources.flatMap(({ path, eager }) =>
    eager
      .filter((file) => LOADED_LATER.has(file) && placeOf(path) !== placeOf(file))
      .map((file) => `${path} must load ${file} by import(), because it loads later than its module`),
  );

const hasEntryPoints: Rule = (sources) => {
  const byModule = Map.groupBy(sources.map(({ path }) => path).filter(isInModule), placeOf);
  return [...byModule].flatMap(([module, paths]) => [
    ...(paths.includes(`${module}/index.ts`) ? [] : [`${module} has no index.ts`]),
    ...paths
      .filter((path) => path.endsWith("/index.ts") && path !== `${module}/index.ts`)
      .map((path) => `${path} is an entry point inside a module`),
  ]);
};

/**
 * Layers of the files of a module, from the lowest up. Files in none of these directories are below all; index.ts is
 * above.
 */
const INNER_LAYERS: ReadonlyMap<string, readonly string[]> = new Map([
  ["src/agent/files", ["threads", "open", "entries", "calls"]],
]);

const innerLayers: Rule = (sources) =>
  eachImport(sources, (from, to) => {
    const module = placeOf(from);
    const names = INNER_LAYERS.get(module);
    if (names === undefined || placeOf(to) !== module || from === `${module}/index.ts`) return undefined;
    const layerOf = (path: string): number => names.indexOf(path.slice(module.length + 1).split("/")[0] ?? "");
    if (layerOf(to) <= layerOf(from)) return undefined;
    return `${from} must not import ${to}: the layers of ${module} are ${names.join(", ")}, each above the ones before`;
  });

const unlayered: Rule = (sources) =>
  sources.flatMap(({ path }) => {
    const names = INNER_LAYERS.get(placeOf(path));
    const [directory = "", ...deeper] = path.split("/").slice(3);
    const isKnown = names === undefined || deeper.length === 0 || names.includes(directory);
    return isKnown ? [] : [`${path} is in no layer of ${placeOf(path)}: ${names.join(", ")}`];
  });

const traceable: Rule = (sources) =>
  sources
    .filter(({ untraceable }) => untraceable > 0)
    .map(({ path }) => `${path} imports something other than a plain string, which these rules cannot follow`);

const noCycles: Rule = (sources) => {
  const imports = new Map(sources.map(({ path, files }) => [path, files]));
  const done = new Set<string>();
  const found: string[] = [];
  const visit = (path: string, trail: readonly string[]): void => {
    if (trail.includes(path)) found.push(`cycle: ${[...trail.slice(trail.indexOf(path)), path].join(" → ")}`);
    if (trail.includes(path) || done.has(path)) return;
    for (const next of imports.get(path) ?? []) visit(next, [...trail, path]);
    done.add(path);
  };
  for (const { path } of sources) visit(path, []);
  return found;
};

/** For Node 20 (guestctl), esbuild translates it to code that throws the error of an earlier iteration again. */
const noUsingInLoops: Rule = (sources) =>
  sources.flatMap(({ path, usingInLoops }) => usingInLoops.map((line) => `${path}:${line} has using in a loop`));

/** All rules except those of .oxlintrc.json (no-restricted-imports), each by its description. */
export const RULES: ReadonlyMap<string, Rule> = new Map([
  ["every directory of src is a known program, and every directory in it a known module", knownModules],
  ["the agent and the node side do not import each other, and shared imports neither", twoPrograms],
  ["a module imports only lower layers, and only boot imports config and platform", layerOrder],
  ["a module is imported only through its index.ts", entryPoints],
  ["files that load later than their module are loaded by import()", loadedLater],
  ["every module has an index.ts, and no directory in it has one", hasEntryPoints],
  [
    "in a module with layers, files import only lower layers, and every directory is a layer",
    (sources) => [...innerLayers(sources), ...unlayered(sources)],
  ],
  ["every import can be followed", traceable],
  ["no imports form a cycle", noCycles],
  ["no using in a loop", noUsingInLoops],
]);
