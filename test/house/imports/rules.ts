import type { Module } from "./modules.ts";

/** A rule of the house over all modules of src/. Gives one line per offence. */
export type Rule = (modules: readonly Module[]) => string[];

const CAPABILITIES = ["workload", "exec", "files", "hooks", "health", "restore", "check"];

/** The floor of each room; imports only lead down. Rooms of one floor do not know each other. */
const FLOORS: ReadonlyMap<string, number> = new Map([
  ["main", 8],
  ...["boot", "cli"].map((room) => [room, 7] as const),
  ["sandboxes", 6],
  ...["server", "client"].map((room) => [room, 5] as const),
  ...["rpc", "credentials"].map((room) => [room, 4] as const),
  ["http2", 3],
  ...CAPABILITIES.map((room) => [room, 3] as const),
  ...["config", "platform"].map((room) => [room, 2] as const),
  ...["session", "native", "tar"].map((room) => [room, 1] as const),
  ...["domain", "gen", "transports", "version"].map((room) => [room, 0] as const),
]);

/** Rooms that not everyone above may enter. */
const GUESTS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ["sandboxes", new Set(["cli"])],
  ["config", new Set(["boot"])],
  ["platform", new Set(["boot"])],
  ["native", new Set(["platform", "boot", "main"])],
  ["gen", new Set(["config", "rpc", "server", "client", "cli"])],
  ["version", new Set(["main", "boot", "server", "client", "cli"])],
]);

/** Packages that carry the wire; the domain and the capabilities never see them. */
const WIRE_PACKAGES = /^(?:@bufbuild\/|@connectrpc\/|@grpc\/|node:http2$)/;
const WIRE_ROOMS: ReadonlySet<string> = new Set(["config", "rpc", "http2", "server", "client", "cli", "gen"]);

const LINE_LIMIT = 400;

/** The room of a file of src/: its first folder, or its own name where it lies in src/ itself. */
function roomOf(path: string): string {
  return (path.split("/")[1] ?? "").replace(/\.ts$/, "");
}

function mayEnter(from: string, to: string): boolean {
  if (from === to) return true;
  const guests = GUESTS.get(to);
  return (guests === undefined || guests.has(from)) && (FLOORS.get(to) ?? 0) < (FLOORS.get(from) ?? 0);
}

/** Calls `complaint` for every import of a project file by another. */
function eachImport(modules: readonly Module[], complaint: (from: string, to: string) => string | undefined): string[] {
  return modules.flatMap(({ path, files }) =>
    files.map((file) => complaint(path, file)).filter((line) => line !== undefined),
  );
}

const knownRooms: Rule = (modules) => {
  const rooms = new Set(modules.map(({ path }) => roomOf(path)));
  return [...rooms].filter((room) => !FLOORS.has(room)).map((room) => `src/${room} is no room of the house`);
};

const floors: Rule = (modules) =>
  eachImport(modules, (from, to) => {
    if (!to.startsWith("src/") || mayEnter(roomOf(from), roomOf(to))) return undefined;
    return `${from} must not import ${to}: ${roomOf(from)} may not enter ${roomOf(to)}`;
  });

/** Second doors: parts that are loaded at another time than the rest of their room, so that nobody waits for both. */
const SIDE_DOORS: ReadonlySet<string> = new Set([
  "src/server/warm-up.ts",
  "src/server/workload/server.ts",
  "src/rpc/handlers/serve.ts",
  "src/platform/guest-facts.ts",
  "src/credentials/certificates.ts",
]);

/** Whether the file lies in a folder of src/, of which one sees only the door from outside. Generated code has no doors. */
function liesInRoom(path: string): boolean {
  return /^src\/[^/]+\//.test(path) && roomOf(path) !== "gen";
}

/** Code outside a room reaches what is in it only through its index.ts. */
const doors: Rule = (modules) =>
  eachImport(modules, (from, to) => {
    if (!liesInRoom(to) || roomOf(from) === roomOf(to)) return undefined;
    if (to === `src/${roomOf(to)}/index.ts` || SIDE_DOORS.has(to)) return undefined;
    return `${from} must enter src/${roomOf(to)} through its index.ts, not import ${to}`;
  });

const doorsOfRooms: Rule = (modules) => {
  const rooms = Map.groupBy(modules.map(({ path }) => path).filter(liesInRoom), (path) => `src/${roomOf(path)}`);
  return [...rooms].flatMap(([room, paths]) => [
    ...(paths.includes(`${room}/index.ts`) ? [] : [`${room} has no index.ts`]),
    ...paths
      .filter((path) => path.endsWith("/index.ts") && path !== `${room}/index.ts`)
      .map((path) => `${path} is a door inside a room`),
  ]);
};

const wire: Rule = (modules) =>
  modules
    .filter(({ path }) => !WIRE_ROOMS.has(roomOf(path)))
    .flatMap(({ path, packages }) =>
      packages
        .filter((name) => WIRE_PACKAGES.test(name))
        .map((name) => `${path} must not see the wire: it imports ${name}`),
    );

const pureDomain: Rule = (modules) =>
  modules
    .filter(({ path }) => roomOf(path) === "domain")
    .flatMap(({ path, packages }) => packages.map((name) => `${path} must be pure: it imports ${name}`));

const existing: Rule = (modules) => {
  const known = new Set(modules.map(({ path }) => path));
  return eachImport(modules, (from, to) =>
    to.startsWith("src/") && !known.has(to) ? `${from} imports ${to}, which is not there` : undefined,
  );
};

const traceable: Rule = (modules) =>
  modules
    .filter(({ untraceable }) => untraceable > 0)
    .map(({ path }) => `${path} imports something that is no plain string: nobody can follow that`);

const noCycles: Rule = (modules) => {
  const imports = new Map(modules.map(({ path, files }) => [path, files]));
  const done = new Set<string>();
  const found: string[] = [];
  const visit = (path: string, trail: readonly string[]): void => {
    if (trail.includes(path)) found.push(`cycle: ${[...trail.slice(trail.indexOf(path)), path].join(" → ")}`);
    if (trail.includes(path) || done.has(path)) return;
    for (const next of imports.get(path) ?? []) visit(next, [...trail, path]);
    done.add(path);
  };
  for (const { path } of modules) visit(path, []);
  return found;
};

const smallFiles: Rule = (modules) =>
  modules
    .filter(({ path, lines }) => roomOf(path) !== "gen" && lines > LINE_LIMIT)
    .map(({ path, lines }) => `${path} has ${lines} lines, more than ${LINE_LIMIT}: it is more than one thing`);

/** What esbuild makes of it for Node 20 (guestctl) throws the error of an earlier turn again. */
const noUsingInLoops: Rule = (modules) =>
  modules.flatMap(({ path, usingInLoops }) => usingInLoops.map((line) => `${path}:${line} has using in a loop`));

/** All rules, by the sentence that each holds. */
export const RULES: ReadonlyMap<string, Rule> = new Map([
  ["every folder of src is a room of the house", knownRooms],
  ["imports lead down the floors, and only boot imports config and platform", floors],
  ["a room is entered through its index.ts", doors],
  ["every room has an index.ts, and no folder in it has one", doorsOfRooms],
  ["only the rooms of the wire see protobuf, gRPC and HTTP/2", wire],
  ["the domain imports nothing but the domain", pureDomain],
  ["every imported file is there", existing],
  ["every import can be followed", traceable],
  ["no imports in a circle", noCycles],
  ["no using in a loop", noUsingInLoops],
  [`no file is longer than ${LINE_LIMIT} lines`, smallFiles],
]);
