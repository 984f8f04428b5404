import { chmodSync, copyFileSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

import { buildNative } from "../build-native.ts";
import { pack, writeChecksums } from "./archive.ts";
import type { AgentScript } from "./bundle.ts";
import { billOfMaterials } from "./bill-of-materials.ts";
import { collectLicences, debianPackagesOf, type Materials, packagesOf, readPackage } from "./materials.ts";
import { makeExecutable } from "./executable.ts";
import { inspect } from "./inspect.ts";
import { type Architecture, buildLauncher } from "./toolchain.ts";
import { collectLibraries, staticLibrary } from "./libraries.ts";
import { nodePackage } from "./node-base.ts";
import { writePageList } from "./page-list.ts";

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
    debian: debianPackagesOf([...libraries.map(({ source }) => source), staticLibrary(arch)]),
  };
  collectLicences(materials, join(unfinished, "LICENSES"));
  writeFileSync(join(unfinished, "sbom.cdx.json"), billOfMaterials(materials, unfinished, libraries));
  writePageList(arch, unfinished);
  writeChecksums(unfinished);
  setModes(unfinished);
  refuseFaults(arch, unfinished, root);
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

function refuseFaults(arch: Architecture, folder: string, root: string): void {
  const buildPaths = [root, join(homedir(), "/")].filter((path) => path.length > 1);
  const faults = inspect(arch, folder, buildPaths);
  if (faults.length > 0) throw new Error(`the files for ${arch} cannot be shipped:\n${faults.join("\n")}`);
}
