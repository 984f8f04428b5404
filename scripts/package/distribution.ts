import { chmodSync, copyFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

import { buildNative } from "../build-native.ts";
import { pack, writeChecksums } from "./archive.ts";
import {
  billOfMaterials,
  collectLicences,
  debianPackagesOf,
  type Materials,
  packagesOf,
  readPackage,
} from "./materials.ts";
import { makeExecutable } from "./executable.ts";
import { filesBelow, inspect } from "./inspect.ts";
import { type Architecture, buildLauncher } from "./toolchain.ts";
import { collectLibraries, staticLibrary } from "./libraries.ts";
import { nodePackage } from "./node-base.ts";
import { writePageList } from "./page-list.ts";

/** The agent's script, bundled, and the files that went into it. */
export interface AgentScript {
  readonly file: string;
  readonly inputs: readonly string[];
}

/** A finished distribution. */
export interface Distribution {
  readonly folder: string;
  /** The folder as one file, compressed in two ways. */
  readonly archives: readonly string[];
}

/**
 * Makes dist/linux-<arch>, the folder that is put into a sandbox, and its archives. The folder appears when it is complete
 * and has passed its inspection; what was there before is replaced.
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
    node: readPackage(await nodePackage(arch)),
    npm: packagesOf(root, script.inputs),
    debian: debianPackagesOf([...libraries, staticLibrary(arch)]),
  };
  collectLicences(materials, join(unfinished, "LICENSES"));
  writeFileSync(join(unfinished, "sbom.cdx.json"), billOfMaterials(materials));
  writePageList(arch, unfinished);
  writeChecksums(unfinished);
  setModes(unfinished);
  refuseFaults(arch, unfinished, root);
  rmSync(folder, { recursive: true, force: true });
  renameSync(unfinished, folder);
  return { folder, archives: await pack(folder, `guest-agent-${materials.project.version}-linux-${arch}`) };
}

/** Whatever the builder's umask: everybody may read and run, nobody but the owner may write. */
function setModes(folder: string): void {
  const files = filesBelow(folder);
  for (const parent of new Set([folder, ...files.flatMap((file) => foldersBetween(folder, file))])) {
    chmodSync(parent, 0o755);
  }
  for (const file of files) {
    const isProgram = /(^|\/)(guest-agent|agent\.bin|agent\.node|lib\/[^/]+\.so\.\d+)$/.test(file);
    chmodSync(file, isProgram ? 0o755 : 0o644);
  }
}

function foldersBetween(folder: string, file: string): string[] {
  const parent = dirname(file);
  return parent === folder ? [] : [parent, ...foldersBetween(folder, parent)];
}

function refuseFaults(arch: Architecture, folder: string, root: string): void {
  const faults = inspect(
    arch,
    folder,
    [root, join(homedir(), "/")].filter((path) => path.length > 1),
  );
  if (faults.length > 0) throw new Error(`the files for ${arch} cannot be shipped:\n${faults.join("\n")}`);
}
