import { copyFileSync, mkdirSync, mkdtempDisposableSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

import { buildNative } from "../build-native.ts";
import { makeCodeCache } from "./agent/code-cache.ts";
import { CODE_CACHE_ASSET, SCRIPT_ASSET } from "./agent/compile.ts";
import { bundle } from "./bundle.ts";
import { nodePackage } from "./node-base.ts";
import { type Architecture, runTool, toolFor } from "./toolchain.ts";

/**
 * Puts the agent's script into a copy of Node: one executable. The code cache, which saves start-up time, only fits the
 * architecture of the machine that builds, so the other executable has none.
 */
export async function makeExecutable(arch: Architecture, script: string, output: string): Promise<void> {
  using temporary = mkdtempDisposableSync(join(tmpdir(), "guest-agent-executable-"));
  const folder = temporary.path;
  await bundle(join(import.meta.dirname, "agent", "start.ts"), join(folder, "start.cjs"));
  copyFileSync(script, join(folder, SCRIPT_ASSET));
  const hasCodeCache = arch === process.arch;
  if (hasCodeCache) await makeCodeCache(script, dirname(buildNative(arch)), join(folder, CODE_CACHE_ASSET));
  // pkg runs this machine's Node to make an executable for any architecture.
  for (const wanted of new Set([arch, process.arch as Architecture])) seedCache(folder, wanted);
  const result = join(folder, "agent.bin");
  const assets = [SCRIPT_ASSET, ...(hasCodeCache ? [CODE_CACHE_ASSET] : [])];
  const bake = [join(import.meta.dirname, "bake.ts"), arch, result, ...assets];
  runTool(process.execPath, bake, folder, { HOME: folder, TMPDIR: folder });
  copyFileSync(result, output);
}

/**
 * Puts Node into the folder in which pkg looks before it downloads. Node is stripped here, because the finished
 * executable cannot be.
 */
function seedCache(home: string, arch: Architecture): void {
  const name = `node-v${process.versions.node}-linux-${arch}`;
  const cache = join(home, ".pkg-cache", "sea");
  const node = join(cache, name, "bin", "node");
  mkdirSync(join(cache, name, "bin"), { recursive: true });
  runTool(toolFor(arch, "strip"), ["-o", node, join(nodePackage(arch), "bin", "node")]);
  for (const mark of [`${node}.ok`, join(cache, `${name}.tar.gz`), join(cache, `${name}.tar.gz.ok`)]) {
    writeFileSync(mark, "");
  }
}
