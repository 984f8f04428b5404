/**
 * Builds the native addon into dist/native/linux-<arch>/agent.node, unless that was built from the same sources.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runScript, UsageError, words } from "./machine/script.ts";

const USAGE = `usage: npm run build:native [-- x64|arm64]
  default: this machine's own architecture`;

const ROOT = join(import.meta.dirname, "..");
const SOURCES = join(ROOT, "src", "native", "addon");
const FLAGS = [
  "-O2",
  "-fPIC",
  "-shared",
  "-s",
  "-pthread",
  "-std=gnu11",
  "-D_GNU_SOURCE",
  "-Wall",
  "-Wextra",
  "-Werror",
];
const COMPILERS: Readonly<Record<string, string>> = { x64: "gcc", arm64: "aarch64-linux-gnu-gcc" };

function compilerFor(arch: string): string {
  const compiler = arch === process.arch ? "gcc" : COMPILERS[arch];
  if (compiler === undefined) throw new UsageError(`cannot build for "${arch}": the architecture is x64 or arm64`);
  return compiler;
}

/** The headers are the same for every architecture: those of whichever Node package is installed do. */
function includeFolder(): string {
  const folders = ["x64", "arm64"].map((arch) => join(ROOT, "node_modules", `node-linux-${arch}`, "include", "node"));
  const found = folders.find((folder) => existsSync(join(folder, "node_api.h")));
  if (found === undefined) throw new Error(`Node's headers are missing in ${folders.join(" and ")}: run npm ci`);
  return found;
}

function sourceFiles(): string[] {
  return readdirSync(SOURCES)
    .filter((name) => /\.[ch]$/.test(name))
    .toSorted();
}

function hashOf(command: readonly string[]): string {
  const hash = createHash("sha256").update(command.join("\0"));
  for (const name of sourceFiles()) hash.update(`\0${name}\0`).update(readFileSync(join(SOURCES, name)));
  return hash.digest("hex");
}

function compile(compiler: string, args: readonly string[]): void {
  const result = spawnSync(compiler, args, { cwd: SOURCES, encoding: "utf8" });
  if (result.error !== undefined && "code" in result.error && result.error.code === "ENOENT")
    throw new Error(
      `the C compiler ${compiler} is missing: on Debian, install build-essential (or g++-aarch64-linux-gnu)`,
    );
  if (result.status !== 0) throw new Error(`the addon does not compile:\n${result.stderr}`);
}

/** Builds the addon if its sources changed; returns its path. Concurrent calls are safe: a finished file is renamed. */
export function buildNative(arch: string = process.arch): string {
  const folder = join(ROOT, "dist", "native", `linux-${arch}`);
  const output = join(folder, "agent.node");
  const stampFile = join(folder, "agent.node.sources");
  const compiler = compilerFor(arch);
  const args = [...FLAGS, "-I", includeFolder(), ...sourceFiles().filter((name) => name.endsWith(".c"))];
  const stamp = hashOf([compiler, ...args]);
  if (existsSync(output) && existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return output;
  mkdirSync(folder, { recursive: true });
  const unfinished = `${output}.${process.pid}`;
  try {
    compile(compiler, [...args, "-o", unfinished]);
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
    const [arch, tooMuch] = words();
    if (tooMuch !== undefined) throw new UsageError(`"${tooMuch}" is an argument too many`);
    console.log(buildNative(arch));
    return Promise.resolve(0);
  });
}
