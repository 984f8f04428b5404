import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A package of npm whose code is in a bundle. */
export interface NpmPackage {
  readonly name: string;
  readonly version: string;
  /** An SPDX expression. */
  readonly license: string;
  readonly folder: string;
}

/** The packages that bundled files come from, by name; files of the project itself are none. */
export function packagesOf(root: string, files: readonly string[]): NpmPackage[] {
  const folders = new Set(files.flatMap((file) => packageFolder(file) ?? []));
  return [...folders].toSorted().map((folder) => readPackage(join(root, folder)));
}

function packageFolder(file: string): string | undefined {
  return /^.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(file)?.[0];
}

/** Reads a package's manifest. */
export function readPackage(folder: string): NpmPackage {
  const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as NpmPackage;
  const { name, version, license } = manifest;
  if (typeof license !== "string") throw new Error(`${name} names no licence: it cannot be shipped`);
  return { name, version, license, folder };
}

/** Files of a package that state its licence. */
export function licenceFiles({ folder }: NpmPackage): string[] {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  return names.filter((name) => /^(licen[cs]e|notice|copying)/i.test(name)).toSorted();
}
