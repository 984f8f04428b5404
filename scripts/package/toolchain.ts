import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { providePrograms } from "../machine/programs.ts";

/** An architecture that the agent is built for, by its name in Node. */
export type Architecture = "x64" | "arm64";

/** Whether the agent is built for it. */
export function isArchitecture(text: string): text is Architecture {
  return text === "x64" || text === "arm64";
}

/** Prefix of Debian's tools for an architecture. */
const PREFIXES: Readonly<Record<Architecture, string>> = { x64: "x86_64-linux-gnu-", arm64: "aarch64-linux-gnu-" };

const C_FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"];

/**
 * Name of a binutils or gcc tool. For this machine's architecture the name has no prefix; for another one it is the
 * cross compiler's.
 */
export function toolFor(arch: Architecture, tool: string): string {
  return arch === process.arch ? tool : `${PREFIXES[arch]}${tool}`;
}

/** Whether a tool of that name can be run. */
export function haveTool(name: string): boolean {
  return spawnSync(name, ["--version"], { stdio: "ignore" }).error === undefined;
}

/** Runs a tool and returns its output. If it fails, throws an error with its output. */
export function runTool(
  name: string,
  args: readonly string[],
  directory?: string,
  env: Readonly<Record<string, string>> = {},
): string {
  return execFileSync(name, args, {
    cwd: directory,
    // Keeps readelf from translating its output, which callers parse.
    env: { ...process.env, LC_ALL: "C", ...env },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    maxBuffer: 256 * 1024 * 1024,
  });
}

/** Compiles C with the project's flags. Warnings are errors. */
export function compile(arch: Architecture, directory: string, args: readonly string[]): void {
  const gcc = toolFor(arch, "gcc");
  if (!haveTool(gcc)) {
    throw new Error(
      `the C compiler ${gcc} is missing: on Debian, install build-essential (or ${CROSS_PACKAGES[arch]})`,
    );
  }
  runTool(gcc, [...C_FLAGS, ...args], directory);
}

/** The C files of a directory, sorted. */
export function cFiles(directory: string): string[] {
  const names = readdirSync(directory).filter((name) => name.endsWith(".c"));
  return names.toSorted();
}

const SOURCES = join(import.meta.dirname, "..", "..", "src", "agent", "native", "launcher");

/**
 * Compiles the launcher into `output`. It is linked statically with glibc, which build-essential includes. It would be
 * 0.1 MB instead of 0.7 MB with a smaller C library, but that would have to be installed.
 */
export function buildLauncher(arch: Architecture, output: string, defines: readonly string[] = []): void {
  mkdirSync(dirname(output), { recursive: true });
  const flags = [...defines, "-Os", "-fPIE", "-static-pie", "-s", "-Wl,--build-id=none", "-Wl,-z,noexecstack"];
  compile(arch, SOURCES, [...flags, ...cFiles(SOURCES), "-o", output]);
}

/** Debian's package for compiling for an architecture on another one. It includes binutils and the C and C++ libraries. */
export const CROSS_PACKAGES: Readonly<Record<Architecture, string>> = {
  x64: "g++-x86-64-linux-gnu",
  arm64: "g++-aarch64-linux-gnu",
};

/** Whether this machine can compile for the architecture. Tries to install Debian's cross compiler. */
export function prepareTools(arch: Architecture): boolean {
  // Check for the C++ compiler, because the shipped files need its library, and because its package depends on all the
  // other tools.
  const compiler = { name: toolFor(arch, "g++"), package: CROSS_PACKAGES[arch] };
  return providePrograms([compiler], `to build for ${arch}`).length === 0;
}
