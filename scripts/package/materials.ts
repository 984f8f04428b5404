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
  /** The package of Node; its licence file covers the components inside Node. */
  readonly node: NpmPackage;
  /** Packages whose code is bundled. */
  readonly npm: readonly NpmPackage[];
  /** Debian packages of the shipped libraries and of the statically linked parts. */
  readonly debian: readonly DebianPackage[];
}

/** The Debian package of a shipped library. */
export interface DebianPackage {
  readonly name: string;
  readonly version: string;
  readonly architecture: string;
  /** Path of its copyright file. */
  readonly copyright: string;
  /** The shipped files that come from this package, by their paths on this machine. */
  readonly files: readonly string[];
}

/** The packages that own the files, by name. */
export function debianPackagesOf(files: readonly string[]): DebianPackage[] {
  const paths = files.flatMap((file) => [file, withoutUsr(file)]);
  // One call names all files, because dpkg-query reads its whole database at each call. A failure is normal: it only
  // means that at least one file belongs to no package.
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

/** dpkg knows a file by the path in its package, which may lack the /usr that /lib links to. */
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
  /** The licence as an SPDX expression. */
  readonly license: string;
  readonly description: string;
  readonly directory: string;
}

/** The npm packages of bundled files, by name, without the project itself. */
export function packagesOf(root: string, files: readonly string[]): NpmPackage[] {
  const directories = files.flatMap((file) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(file)?.[0] ?? []);
  return [...new Set(directories)].toSorted().map((directory) => readPackage(join(root, directory)));
}

/** Reads a package's manifest. */
export function readPackage(directory: string): NpmPackage {
  const manifest = JSON.parse(readFileSync(join(directory, "package.json"), "utf8")) as Omit<
    NpmPackage,
    "description"
  > & {
    readonly description?: string;
  };
  const { name, version, license, description = "" } = manifest;
  if (typeof license !== "string") throw new Error(`${name} names no licence: it cannot be shipped`);
  return { name, version, license, description, directory };
}

/** Writes the licences of everything shipped into a directory, with a subdirectory for each package. */
export function collectLicences({ project, node, npm, debian }: Materials, directory: string): void {
  for (const source of [project, node, ...npm]) copyLicences(source, join(directory, source.name));
  for (const { name, copyright } of debian) {
    mkdirSync(join(directory, "debian", name), { recursive: true });
    copyFileSync(copyright, join(directory, "debian", name, "copyright"));
  }
}

/** If a package has no licence file, its manifest names the licence. */
function copyLicences(source: NpmPackage, directory: string): void {
  mkdirSync(directory, { recursive: true });
  const files = readdirSync(source.directory).filter((name) => /^(licen[cs]e|notice|copying)/i.test(name));
  for (const file of files) copyFileSync(join(source.directory, file), join(directory, file));
  if (files.length === 0) {
    writeFileSync(join(directory, "LICENSE"), `${source.name} ${source.version}: ${source.license}\n`);
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

/** Vendor and product names in vulnerability databases, by the names that Node uses for its components. */
const PRODUCTS: Readonly<Record<string, string>> = { node: "nodejs:node.js", openssl: "openssl:openssl" };
/** The agent's own files. */
const PROGRAMS = ["guest-agent", "agent.bin", "agent.node"];

/**
 * A bill of materials in CycloneDX 1.6: packages of npm and Debian, Node with everything compiled into it, and each
 * shipped program and library with its digest. Its serial number is a digest of the contents, so that building a
 * release twice gives the same bill.
 *
 * @param directory contains the files as they are shipped, with the libraries in `lib`
 */
export function billOfMaterials(materials: Materials, directory: string, libraries: readonly Library[]): string {
  const { project, node, npm, debian } = materials;
  const programs = PROGRAMS.map((path) => fileComponent(directory, path));
  const content = {
    version: 1,
    metadata: {
      timestamp: RELEASE_TIME,
      component: { ...npmComponent(project), type: "application", components: programs },
    },
    components: [
      nodeComponent(node),
      ...npm.map(npmComponent),
      ...debian.map((source) => debianComponent(source, directory, libraries)),
    ],
  };
  const head = { bomFormat: "CycloneDX", specVersion: "1.6", serialNumber: serialNumber(JSON.stringify(content)) };
  return `${JSON.stringify({ ...head, ...content }, undefined, 2)}\n`;
}

/** A UUID of version 8, whose bits may be chosen freely (RFC 9562, 5.8). */
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

function debianComponent(source: DebianPackage, directory: string, libraries: readonly Library[]): Component {
  const { name, version, architecture, files } = source;
  const purl = `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${architecture}`;
  const own = libraries.filter((library) => files.includes(library.source));
  const components = own.map((library) => fileComponent(directory, `lib/${library.name}`));
  return { "bom-ref": purl, type: "library", name, version, purl, ...(own.length > 0 && { components }) };
}

/**
 * Node and the libraries compiled into it. The versions are those of the Node that runs the build, which is the same
 * release.
 */
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

function fileComponent(directory: string, path: string): Component {
  const content = sha256(readFileSync(join(directory, path)));
  return { "bom-ref": path, type: "file", name: path, hashes: [{ alg: "SHA-256", content }] };
}
