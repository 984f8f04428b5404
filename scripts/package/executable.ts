import { copyFileSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

import { buildNative } from "../build-native.ts";
import { makeCodeCache } from "./agent/code-cache.ts";
import { CODE_CACHE_ASSET, SCRIPT_ASSET } from "./agent/compile.ts";
import { bundle } from "./bundle.ts";
import { nodeExecutable } from "./node-base.ts";
import { type Architecture, runTool, toolFor } from "./toolchain.ts";

const START = join(import.meta.dirname, "agent", "start.ts");

/**
 * Puts the agent's script into a copy of Node: one executable. The code cache, which saves start-up time, only fits the
 * architecture of the machine that builds, so the other executable has none.
 */
export async function makeExecutable(arch: Architecture, script: string, output: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "guest-agent-executable-"));
  try {
    await bundle(START, join(folder, "start.cjs"), { target: "node26" });
    copyFileSync(script, join(folder, SCRIPT_ASSET));
    const hasCodeCache = arch === process.arch;
    if (hasCodeCache) await makeCodeCache(script, dirname(buildNative(arch)), join(folder, CODE_CACHE_ASSET));
    await seedCache(folder, arch);
    // pkg runs this machine's Node to make an executable for any architecture.
    if (arch !== process.arch) await seedCache(folder, process.arch as Architecture);
    const result = join(folder, "agent.bin");
    bake(folder, [arch, result, SCRIPT_ASSET, ...(hasCodeCache ? [CODE_CACHE_ASSET] : [])]);
    copyFileSync(result, `${output}.unfinished`);
    renameSync(`${output}.unfinished`, output);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Fills the folder in which pkg looks before it downloads: with Node, stripped now, as the finished executable cannot be. */
async function seedCache(home: string, arch: Architecture): Promise<void> {
  const name = `node-v${process.versions.node}-linux-${arch}`;
  const cache = join(home, ".pkg-cache", "sea");
  const node = join(cache, name, "bin", "node");
  mkdirSync(join(cache, name, "bin"), { recursive: true });
  runTool(toolFor(arch, "strip"), ["-o", node, await nodeExecutable(arch)]);
  for (const mark of [`${node}.ok`, join(cache, `${name}.tar.gz`), join(cache, `${name}.tar.gz.ok`)]) {
    writeFileSync(mark, "");
  }
}

function bake(folder: string, args: readonly string[]): void {
  runTool(process.execPath, [join(import.meta.dirname, "bake.ts"), ...args], folder, { HOME: folder, TMPDIR: folder });
}
