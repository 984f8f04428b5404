import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempDisposableSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { buildNative } from "../build-native.ts";
import { makeCodeCache } from "./agent/code-cache.ts";
import { CODE_CACHE_ASSET, SCRIPT_ASSET } from "./agent/compile.ts";
import { pack, writeChecksums } from "./archive.ts";
import { type AgentScript, bundle } from "./bundle.ts";
import { collectLibraries, locate } from "./elf.ts";
import { inspect } from "./inspect.ts";
import {
  billOfMaterials,
  collectLicences,
  debianPackagesOf,
  type Materials,
  packagesOf,
  readPackage,
} from "./materials.ts";
import { nodePackage } from "./node.ts";
import { writeAgentManual } from "./manual.ts";
import { writePageList } from "./page-list.ts";
import { type Architecture, buildLauncher, runTool, toolFor } from "./toolchain.ts";

/** A finished distribution. */
export interface Distribution {
  readonly folder: string;
  /** The folder as one file, compressed in two ways. */
  readonly archives: readonly string[];
}

/**
 * Makes dist/linux-<arch>, the folder that is put into a sandbox, and its archives. The folder appears when it is
 * complete and has passed its inspection; what was there before is replaced.
 */
export async function makeDistribution(root: string, arch: Architecture, script: AgentScript): Promise<Distribution> {
  const folder = join(root, "dist", `linux-${arch}`);
  const unfinished = join(root, "dist", ".unfinished", `linux-${arch}`);
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { recursive: true });
  const program = join(unfinished, "agent.bin");
  const addon = join(unfinished, "agent.node");
  buildLauncher(arch, join(unfinished, "guest-agent"));
  copyFileSync(buildNative(arch), addon);
  await makeExecutable(arch, script.file, program);
  const libraries = collectLibraries(arch, [program, addon], join(unfinished, "lib"));
  const materials: Materials = {
    project: readPackage(root),
    node: readPackage(nodePackage(arch)),
    npm: packagesOf(root, script.inputs),
    debian: debianPackagesOf([...libraries.map(({ source }) => source), locate(arch, "libc.a")]),
  };
  collectLicences(materials, join(unfinished, "LICENSES"));
  writeFileSync(join(unfinished, "sbom.cdx.json"), billOfMaterials(materials, unfinished, libraries));
  writeAgentManual(join(unfinished, "share/man"));
  writePageList(arch, unfinished);
  writeChecksums(unfinished);
  setModes(unfinished);
  const buildPaths = [root, join(homedir(), "/")].filter((path) => path.length > 1);
  const faults = inspect(arch, unfinished, buildPaths);
  if (faults.length > 0) throw new Error(`the files for ${arch} cannot be shipped:\n${faults.join("\n")}`);
  rmSync(folder, { recursive: true, force: true });
  renameSync(unfinished, folder);
  return { folder, archives: await pack(folder, `guest-agent-${materials.project.version}-linux-${arch}`) };
}

/** Fixed modes, whatever the builder's umask: everybody may read and run, only the owner may write. */
function setModes(folder: string): void {
  chmodSync(folder, 0o755);
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const isProgram = /^(guest-agent|agent\.bin|agent\.node|.+\.so\.\d+)$/.test(entry.name);
    chmodSync(join(entry.parentPath, entry.name), entry.isDirectory() || isProgram ? 0o755 : 0o644);
  }
}

/**
 * Puts the agent's script into a copy of Node: one executable. The code cache, which saves start-up time, only fits the
 * architecture of the machine that builds, so the other executable has none.
 */
async function makeExecutable(arch: Architecture, script: string, output: string): Promise<void> {
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
