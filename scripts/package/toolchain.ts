import { spawnSync } from "node:child_process";

/** An architecture that the agent is built for, by Node's name. */
export type Architecture = "x64" | "arm64";

/** Debian's prefix of the tools that make files for an architecture. */
const PREFIXES: Readonly<Record<Architecture, string>> = { x64: "x86_64-linux-gnu-", arm64: "aarch64-linux-gnu-" };

const C_FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"];

/** Name of a tool of binutils or gcc: plain for this machine's own architecture, else that of the cross tools. */
export function toolFor(arch: Architecture, tool: string): string {
  return arch === process.arch ? tool : `${PREFIXES[arch]}${tool}`;
}

/** Whether a tool of that name can be run. */
export function haveTool(name: string): boolean {
  return spawnSync(name, ["--version"], { stdio: "ignore" }).error === undefined;
}

/** Runs a tool to its end and returns what it printed; throws with its own words when it fails. */
export function runTool(
  name: string,
  args: readonly string[],
  folder?: string,
  env: Readonly<Record<string, string>> = {},
): string {
  const result = spawnSync(name, args, {
    cwd: folder,
    // Messages of the tools are read: readelf's are translated elsewhere.
    env: { ...process.env, LC_ALL: "C", ...env },
    encoding: "utf8",
    maxBuffer: 256 * 1024 * 1024,
  });
  if (result.error !== undefined) throw new Error(`${name} cannot be run: ${result.error.message}`);
  if (result.status !== 0) throw new Error(`${name} failed (${result.status ?? result.signal}):\n${result.stderr}`);
  return result.stdout;
}

/** Compiles C with the project's flags, warnings being errors. */
export function compile(arch: Architecture, folder: string, args: readonly string[]): void {
  runTool(toolFor(arch, "gcc"), [...C_FLAGS, ...args], folder);
}
