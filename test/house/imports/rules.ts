import type { Module } from "./modules.ts";

/** A rule over all modules of src/. Returns one line per offence. */
export type Rule = (modules: readonly Module[]) => string[];

type Floors = ReadonlyMap<string, number>;

/** The floor of each room, from the lowest up. */
const floorsOf = (...floors: readonly string[]): Floors =>
  new Map(floors.flatMap((rooms, floor) => rooms.split(" ").map((room) => [room, floor] as const)));

/**
 * The programs of src/, and the floor of each of their rooms; imports only lead down. Rooms of one floor do not import
 * each other. src/shared has no floors: it is below all rooms but the domain. A suite has rooms of its own, each with
 * its floor, behind one door; a file in none of them belongs to the suite itself.
 */
const HOUSES: ReadonlyMap<string, Floors> = new Map([
  [
    "agent",
    floorsOf(
      "domain",
      "session native internals",
      "config platform",
      "listening http2 workload exec files hooks health restore tunnel usage check",
      "rpc",
      "server workload-service probe",
      "boot",
      "main",
    ),
  ],
  [
    "node",
    floorsOf(
      "tar",
      "client credentials",
      "sandboxes/substrate testing",
      "sandboxes/node",
      "sandboxes/operations",
      "sandboxes/api",
      "sandboxes",
      "guestctl/ending",
      "guestctl/cli",
      "guestctl/sandbox",
      "guestctl/target",
      "guestctl/copy guestctl/terminal",
      "guestctl/commands",
      "guestctl",
    ),
  ],
  ["shared", floorsOf("errors field-writer gen make-folder ports sparse-file text transports tree-items version")],
]);

/** Rooms that only these rooms may import. */
const GUESTS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
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

/** The program of a file of src/, or "shared". */
function houseOf(path: string): string {
  return path.split("/")[1] ?? "";
}

/** Rooms with rooms inside. */
const SUITES: ReadonlySet<string> = new Set(["guestctl", "sandboxes"]);

/** A file's folder in the program, or its own name if it lies in no folder. */
function outerRoomOf(path: string): string {
  return (path.split("/")[2] ?? "").replace(/\.ts$/, "");
}

/** The room of a file of src/: in a suite that of the folder it lies in. */
function roomOf(path: string): string {
  const outer = outerRoomOf(path);
  const [inner = "", ...deeper] = path.split("/").slice(3);
  return SUITES.has(outer) && deeper.length > 0 ? `${outer}/${inner}` : outer;
}

function mayEnter(from: string, to: string): boolean {
  if (roomOf(from) === roomOf(to)) return true;
  const guests = GUESTS.get(outerRoomOf(to));
  const isWithin = outerRoomOf(from) === outerRoomOf(to);
  if (!isWithin && guests !== undefined && !guests.has(outerRoomOf(from))) return false;
  if (houseOf(to) === "shared") return roomOf(from) !== "domain";
  const floorOf = (path: string): number => HOUSES.get(houseOf(path))?.get(roomOf(path)) ?? 0;
  return floorOf(to) < floorOf(from);
}

/** Calls `complaint` for every import of a project file by another. */
function eachImport(modules: readonly Module[], complaint: (from: string, to: string) => string | undefined): string[] {
  return modules.flatMap(({ path, files }) =>
    files.map((file) => complaint(path, file)).filter((line) => line !== undefined),
  );
}

const knownRooms: Rule = (modules) => {
  const unknown = modules.filter(({ path }) => HOUSES.get(houseOf(path))?.has(roomOf(path)) !== true);
  return [...new Set(unknown.map(({ path }) => `${placeOf(path)} is no room of a house`))];
};

const twoPrograms: Rule = (modules) =>
  eachImport(modules, (from, to) => {
    const [house, other] = [houseOf(from), houseOf(to)];
    if (!to.startsWith("src/") || house === other || other === "shared") return undefined;
    return `${from} must not import ${to}: ${house} knows nothing of ${other}`;
  });

const floors: Rule = (modules) =>
  eachImport(modules, (from, to) => {
    const elsewhere = houseOf(from) !== houseOf(to) && houseOf(to) !== "shared";
    if (!to.startsWith("src/") || elsewhere || mayEnter(from, to)) return undefined;
    return `${from} must not import ${to}: ${roomOf(from)} may not enter ${roomOf(to)}`;
  });

/** Modules that load later than the rest of their room: others reach them by import(). */
const LOADED_LATER: ReadonlySet<string> = new Set([
  "src/agent/files/calls/directories.ts",
  "src/agent/server/warm-up.ts",
  "src/agent/rpc/handlers/serve.ts",
  "src/agent/platform/guest-facts.ts",
  "src/agent/platform/guest-usage.ts",
  "src/agent/platform/sockets.ts",
]);

/** Whether the file lies in a room's folder, which others see only through its door. src/shared has no doors. */
function liesInRoom(path: string): boolean {
  return /^src\/(?!shared\/)[^/]+\/[^/]+\//.test(path);
}

const placeOf = (path: string): string => `src/${houseOf(path)}/${roomOf(path)}`;

/** Code outside of a room imports it only through its index.ts, and code outside of a suite through the suite's. */
const doors: Rule = (modules) =>
  eachImport(modules, (from, to) => {
    if (!liesInRoom(to) || placeOf(from) === placeOf(to) || LOADED_LATER.has(to)) return undefined;
    const suite = `src/${houseOf(to)}/${outerRoomOf(to)}`;
    const place = from.startsWith(`${suite}/`) ? placeOf(to) : suite;
    if (to === `${place}/index.ts`) return undefined;
    return `${from} must enter ${place} through its index.ts, not import ${to}`;
  });

const loadedLater: Rule = (modules) =>
  modules.flatMap(({ path, eager }) =>
    eager
      .filter((file) => LOADED_LATER.has(file) && placeOf(path) !== placeOf(file))
      .map((file) => `${path} must load ${file} by import(), as it loads later than its room`),
  );

const doorsOfRooms: Rule = (modules) => {
  const rooms = Map.groupBy(modules.map(({ path }) => path).filter(liesInRoom), placeOf);
  return [...rooms].flatMap(([room, paths]) => [
    ...(paths.includes(`${room}/index.ts`) ? [] : [`${room} has no index.ts`]),
    ...paths
      .filter((path) => path.endsWith("/index.ts") && path !== `${room}/index.ts`)
      .map((path) => `${path} is a door inside a room`),
  ]);
};

/** Layers of a room's files, from the lowest up. What is in none of them is below all; index.ts is above. */
const LAYERS: ReadonlyMap<string, readonly string[]> = new Map([
  ["src/agent/files", ["threads", "open", "entries", "calls"]],
]);

const layers: Rule = (modules) =>
  eachImport(modules, (from, to) => {
    const room = placeOf(from);
    const names = LAYERS.get(room);
    if (names === undefined || placeOf(to) !== room || from === `${room}/index.ts`) return undefined;
    const layerOf = (path: string): number => names.indexOf(path.slice(room.length + 1).split("/")[0] ?? "");
    if (layerOf(to) <= layerOf(from)) return undefined;
    return `${from} must not import ${to}: the layers of ${room} are ${names.join(", ")}, each above the ones before`;
  });

const unlayered: Rule = (modules) =>
  modules.flatMap(({ path }) => {
    const names = LAYERS.get(placeOf(path));
    const [folder = "", ...deeper] = path.split("/").slice(3);
    const isKnown = names === undefined || deeper.length === 0 || names.includes(folder);
    return isKnown ? [] : [`${path} is in no layer of ${placeOf(path)}: ${names.join(", ")}`];
  });

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

/** esbuild's form of it for Node 20 (guestctl) throws the error of an earlier turn again. */
const noUsingInLoops: Rule = (modules) =>
  modules.flatMap(({ path, usingInLoops }) => usingInLoops.map((line) => `${path}:${line} has using in a loop`));

/** All rules but those of .oxlintrc.json (no-restricted-imports), by the sentence that each enforces. */
export const RULES: ReadonlyMap<string, Rule> = new Map([
  ["every folder of src is a house, and every folder in it a room of that house", knownRooms],
  ["the agent and the node side know nothing of each other, and shared nothing of either", twoPrograms],
  ["imports lead down the floors, and only boot imports config and platform", floors],
  ["a room is entered through its index.ts", doors],
  ["modules that load later than their room are loaded by import()", loadedLater],
  ["every room has an index.ts, and no folder in it has one", doorsOfRooms],
  [
    "inside a room with layers, imports lead down, and every folder is a layer",
    (modules) => [...layers(modules), ...unlayered(modules)],
  ],
  ["every import can be followed", traceable],
  ["no imports in a circle", noCycles],
  ["no using in a loop", noUsingInLoops],
]);
