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
  readonly directory: string;
  /** Archives of the directory, in two compressed formats. */
  readonly archives: readonly string[];
}

/**
 * Builds dist/linux-<arch>, the directory that is put into a sandbox, and its archives. The directory appears only when
 * it is complete and has passed the inspection, and replaces the earlier one.
 */
export async function makeDistribution(root: string, arch: Architecture, script: AgentScript): Promise<Distribution> {
  const directory = join(root, "dist", `linux-${arch}`);
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
  rmSync(directory, { recursive: true, force: true });
  renameSync(unfinished, directory);
  return { directory, archives: await pack(directory, `guest-agent-${materials.project.version}-linux-${arch}`) };
}

/** Sets fixed modes, independent of the builder's umask: everybody may read and execute, only the owner may write. */
function setModes(directory: string): void {
  chmodSync(directory, 0o755);
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    const isProgram = /^(guest-agent|agent\.bin|agent\.node|.+\.so\.\d+)$/.test(entry.name);
    chmodSync(join(entry.parentPath, entry.name), entry.isDirectory() || isProgram ? 0o755 : 0o644);
  }
}

/**
 * Puts the agent's script into a copy of Node as a single executable. The code cache, which makes the start faster,
 * fits only the architecture of the building machine, so an executable for another architecture has none.
 */
async function makeExecutable(arch: Architecture, script: string, output: string): Promise<void> {
  using temporary = mkdtempDisposableSync(join(tmpdir(), "guest-agent-executable-"));
  const directory = temporary.path;
  await bundle(join(import.meta.dirname, "agent", "start.ts"), join(directory, "start.cjs"));
  copyFileSync(script, join(directory, SCRIPT_ASSET));
  const hasCodeCache = arch === process.arch;
  if (hasCodeCache) await makeCodeCache(script, dirname(buildNative(arch)), join(directory, CODE_CACHE_ASSET));
  // pkg runs this machine's Node, whatever the architecture of the executable.
  for (const wanted of new Set([arch, process.arch as Architecture])) seedCache(directory, wanted);
  const result = join(directory, "agent.bin");
  const assets = [SCRIPT_ASSET, ...(hasCodeCache ? [CODE_CACHE_ASSET] : [])];
  const bake = [join(import.meta.dirname, "bake.ts"), arch, result, ...assets];
  runTool(process.execPath, bake, directory, { HOME: directory, TMPDIR: directory });
  copyFileSync(result, output);
}

/**
 * Puts Node into the directory in which pkg looks before it downloads. Strips Node here, because the finished
 * executable cannot be stripped.
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
