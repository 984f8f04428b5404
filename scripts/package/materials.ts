import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { RELEASE_TIME, sha256 } from "./archive.ts";
import type { Library } from "./elf.ts";
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

/** A component of CycloneDX 1.6. */
interface Component {
  readonly "bom-ref": string;
  readonly type: "application" | "file" | "framework" | "library";
  readonly name: string;
  readonly version?: string;
  readonly hashes?: readonly object[];
  readonly licenses?: readonly object[];
  readonly cpe?: string;
  readonly purl?: string;
  readonly components?: readonly Component[];
}

/** Vendor and product under which vulnerabilities are listed, by Node's names of its components. */
const PRODUCTS: Readonly<Record<string, string>> = { node: "nodejs:node.js", openssl: "openssl:openssl" };
/** The agent's own files. */
const PROGRAMS = ["guest-agent", "agent.bin", "agent.node"];

/**
 * A bill of materials in CycloneDX 1.6: packages of npm and Debian, Node with what is compiled into it, and each
 * shipped program and library by its digest. Its serial number is a digest of all that: the same release has the same
 * bill, and another release another number.
 *
 * @param folder with the files as they are shipped, libraries in `lib`
 */
export function billOfMaterials(materials: Materials, folder: string, libraries: readonly Library[]): string {
  const { project, node, npm, debian } = materials;
  const programs = PROGRAMS.map((path) => fileComponent(folder, path));
  const content = {
    version: 1,
    metadata: {
      timestamp: RELEASE_TIME,
      component: { ...npmComponent(project), type: "application", components: programs },
    },
    components: [
      nodeComponent(node),
      ...npm.map(npmComponent),
      ...debian.map((source) => debianComponent(source, folder, libraries)),
    ],
  };
  const head = { bomFormat: "CycloneDX", specVersion: "1.6", serialNumber: serialNumber(JSON.stringify(content)) };
  return `${JSON.stringify({ ...head, ...content }, undefined, 2)}\n`;
}

/** A UUID of version 8, whose bits are free (RFC 9562, 5.8). */
function serialNumber(content: string): string {
  const bytes = createHash("sha256").update(content).digest().subarray(0, 16);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x80;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  return `urn:uuid:${bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-")}`;
}

function npmComponent({ name, version, license }: NpmPackage): Component {
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  return { "bom-ref": purl, type: "library", name, version, licenses: [{ expression: license }], purl };
}

function debianComponent(source: DebianPackage, folder: string, libraries: readonly Library[]): Component {
  const { name, version, architecture, files } = source;
  const purl = `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${architecture}`;
  const own = libraries.filter((library) => files.includes(library.source));
  const components = own.map((library) => fileComponent(folder, `lib/${library.name}`));
  return { "bom-ref": purl, type: "library", name, version, purl, ...(own.length > 0 && { components }) };
}

/** Node with the libraries that are compiled into it, by their versions of the Node that builds: the same release. */
function nodeComponent(node: NpmPackage): Component {
  const inside = Object.entries(process.versions).filter(
    (entry): entry is [string, string] => entry[0] !== "modules" && Boolean(entry[1]),
  );
  return {
    ...npmComponent(node),
    type: "framework",
    components: inside.map(([name, version]) => {
      const purl = `pkg:generic/${name}@${encodeURIComponent(version)}`;
      const product = PRODUCTS[name];
      const cpe = product === undefined ? {} : { cpe: `cpe:2.3:a:${product}:${version}:*:*:*:*:*:*:*` };
      return { "bom-ref": purl, type: "library", name, version, ...cpe, purl };
    }),
  };
}

function fileComponent(folder: string, path: string): Component {
  const content = sha256(readFileSync(join(folder, path)));
  return { "bom-ref": path, type: "file", name: path, hashes: [{ alg: "SHA-256", content }] };
}
