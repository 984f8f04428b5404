/** Builds the native addon into dist/native/linux-<arch>/agent.node, unless it was already built from the same sources. */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { runScript, UsageError, words } from "./machine/script.ts";
import { cFiles, compile, isArchitecture, toolFor } from "./package/toolchain.ts";

const USAGE = `usage: npm run build:native [-- x64|arm64]
  default: this machine's own architecture`;

const ROOT = join(import.meta.dirname, "..");
const SOURCES = join(ROOT, "src", "agent", "native", "addon");
/** The part of the addon that uses private interfaces of Node and OpenSSL. */
const INTERNALS = join(ROOT, "src", "agent", "internals");
const FLAGS = ["-O2", "-fPIC", "-shared", "-s", "-pthread"];

/** Node's headers are the same for every architecture, so those of any installed Node package can be used. */
function includeDirectory(): string {
  const directories = ["x64", "arm64"].map((arch) =>
    join(ROOT, "node_modules", `node-linux-${arch}`, "include", "node"),
  );
  const found = directories.find((directory) => existsSync(join(directory, "node_api.h")));
  if (found === undefined) throw new Error(`Node's headers are missing in ${directories.join(" and ")}: run npm ci`);
  return found;
}

/** Digest of everything that determines the addon: the compiler, its arguments and all files that it reads. */
function digestOf(command: readonly string[]): string {
  const hash = createHash("sha256").update(command.join("\0"));
  for (const directory of [SOURCES, INTERNALS]) {
    const names = readdirSync(directory).filter((name) => /\.[ch]$/.test(name));
    for (const name of names.toSorted()) hash.update(`\0${name}\0`).update(readFileSync(join(directory, name)));
  }
  return hash.digest("hex");
}

/**
 * Builds the addon if its sources changed; returns its path. Concurrent calls are safe, because the finished file is
 * renamed to its place.
 */
export function buildNative(arch: string = process.arch): string {
  if (!isArchitecture(arch)) throw new UsageError(`cannot build for "${arch}": the architecture is x64 or arm64`);
  const directory = join(ROOT, "dist", "native", `linux-${arch}`);
  const output = join(directory, "agent.node");
  const stampFile = join(directory, "agent.node.sources");
  const args = [
    ...FLAGS,
    "-I",
    includeDirectory(),
    ...cFiles(SOURCES),
    // Use relative paths, because macros of OpenSSL put the paths of source files into the addon.
    ...cFiles(INTERNALS).map((name) => join(relative(SOURCES, INTERNALS), name)),
  ];
  const stamp = digestOf([toolFor(arch, "gcc"), ...args]);
  if (existsSync(output) && existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return output;
  mkdirSync(directory, { recursive: true });
  const unfinished = `${output}.${process.pid}`;
  try {
    compile(arch, SOURCES, [...args, "-o", unfinished]);
    renameSync(unfinished, output);
    writeFileSync(`${stampFile}.${process.pid}`, stamp);
    renameSync(`${stampFile}.${process.pid}`, stampFile);
  } finally {
    rmSync(unfinished, { force: true });
  }
  return output;
}

if (import.meta.main) {
  await runScript("build:native", USAGE, () => {
    const [arch] = words(1);
    console.log(buildNative(arch));
    return Promise.resolve(0);
  });
}
