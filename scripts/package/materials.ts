import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runTool } from "./toolchain.ts";

/** All components of a distribution. */
export interface Materials {
  readonly project: NpmPackage;
  /** Node's package; its licence file covers the components inside Node. */
  readonly node: NpmPackage;
  /** Packages whose code is bundled. */
  readonly npm: readonly NpmPackage[];
  /** Debian packages of the shipped libraries and static parts. */
  readonly debian: readonly DebianPackage[];
}

/** The Debian package of a shipped library. */
export interface DebianPackage {
  readonly name: string;
  readonly version: string;
  readonly architecture: string;
  /** Path of its copyright file. */
  readonly copyright: string;
  /** Those of the shipped files that it brought, by their paths on this machine. */
  readonly files: readonly string[];
}

/** The packages that own the files, by name. */
export function debianPackagesOf(files: readonly string[]): DebianPackage[] {
  const paths = files.flatMap((file) => [file, withoutUsr(file)]);
  // All in one call, because dpkg-query reads its whole database. It fails if it does not know one, which is usual.
  const { stdout, error } = spawnSync("dpkg-query", ["-S", ...new Set(paths)], { encoding: "utf8" });
  if (error !== undefined) throw new Error(`dpkg-query cannot be run: ${error.message}: build on Debian`);
  const lines = stdout.matchAll(/^([^\s,]+)(?:,.*)?: (\/.*)$/gm);
  const owners = new Map(Array.from(lines, ([, owner = "", path = ""]) => [path, owner] as const));
  const byOwner = Map.groupBy(files, (file) => {
    const owner = owners.get(file) ?? owners.get(withoutUsr(file));
    if (owner !== undefined) return owner;
    throw new Error(`${file} is of no Debian package, so its licence is not known: build on Debian`);
  });
  return [...byOwner]
    .toSorted(([left], [right]) => (left < right ? -1 : 1))
    .map(([owner, own]) => ({ ...describe(owner), files: own }));
}

/** dpkg knows a file by its package's path, which may lack the /usr that /lib links to. */
function withoutUsr(file: string): string {
  return file.replace(/^\/usr\//, "/");
}

function describe(owner: string): Omit<DebianPackage, "files"> {
  const format = "${Package} ${Version} ${Architecture}";
  const [name = "", version = "", architecture = ""] = runTool("dpkg-query", ["-W", "-f", format, owner]).split(" ");
  const copyright = `/usr/share/doc/${name}/copyright`;
  if (!existsSync(copyright)) throw new Error(`${copyright} is missing: reinstall the package ${name}`);
  return { name, version, architecture, copyright };
}

/** A package of npm whose code is in a bundle. */
export interface NpmPackage {
  readonly name: string;
  readonly version: string;
  /** An SPDX expression. */
  readonly license: string;
  readonly description: string;
  readonly folder: string;
}

/** The npm packages of bundled files, by name, without the project itself. */
export function packagesOf(root: string, files: readonly string[]): NpmPackage[] {
  const folders = files.flatMap((file) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(file)?.[0] ?? []);
  return [...new Set(folders)].toSorted().map((folder) => readPackage(join(root, folder)));
}

/** Reads a package's manifest. */
export function readPackage(folder: string): NpmPackage {
  const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Omit<NpmPackage, "description"> & {
    readonly description?: string;
  };
  const { name, version, license, description = "" } = manifest;
  if (typeof license !== "string") throw new Error(`${name} names no licence: it cannot be shipped`);
  return { name, version, license, description, folder };
}

/** Puts the licences of everything shipped into a folder, one folder of it for each package. */
export function collectLicences({ project, node, npm, debian }: Materials, folder: string): void {
  for (const source of [project, node, ...npm]) copyLicences(source, join(folder, source.name));
  for (const { name, copyright } of debian) {
    mkdirSync(join(folder, "debian", name), { recursive: true });
    copyFileSync(copyright, join(folder, "debian", name, "copyright"));
  }
}

/** A package without such a file names its licence in the manifest. */
function copyLicences(source: NpmPackage, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const files = readdirSync(source.folder).filter((name) => /^(licen[cs]e|notice|copying)/i.test(name));
  for (const file of files) copyFileSync(join(source.folder, file), join(folder, file));
  if (files.length === 0) {
    writeFileSync(join(folder, "LICENSE"), `${source.name} ${source.version}: ${source.license}\n`);
  }
}
