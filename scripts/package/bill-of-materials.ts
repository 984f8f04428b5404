import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { RELEASE_TIME } from "./archive.ts";
import type { Library } from "./libraries.ts";
import type { DebianPackage, Materials, NpmPackage } from "./materials.ts";

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
  const content = createHash("sha256")
    .update(readFileSync(join(folder, path)))
    .digest("hex");
  return { "bom-ref": path, type: "file", name: path, hashes: [{ alg: "SHA-256", content }] };
}
