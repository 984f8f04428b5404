import type { DebianPackage } from "./debian-packages.ts";
import type { NpmPackage } from "./npm-packages.ts";

/** Everything that a distribution is made of. */
export interface Materials {
  readonly project: NpmPackage;
  /** The package that Node comes from; its licence file covers the components inside of Node. */
  readonly node: NpmPackage;
  /** Packages whose code is bundled. */
  readonly npm: readonly NpmPackage[];
  /** Packages that the shipped libraries and the static parts come from. */
  readonly debian: readonly DebianPackage[];
}

interface Component {
  readonly type: "application" | "library" | "framework";
  readonly name: string;
  readonly version: string;
  readonly purl?: string;
  readonly licenses?: readonly object[];
  readonly components?: readonly Component[];
}

function npmPurl({ name, version }: NpmPackage): string {
  return `pkg:npm/${name.replace("@", "%40")}@${version}`;
}

function npmComponent(source: NpmPackage): Component {
  const { name, version, license } = source;
  return { type: "library", name, version, licenses: [{ expression: license }], purl: npmPurl(source) };
}

function debianComponent({ name, version, architecture }: DebianPackage): Component {
  const purl = `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${architecture}`;
  return { type: "library", name, version, purl };
}

/** Node with the libraries that are compiled into it, by their versions of the Node that builds: the same release. */
function nodeComponent(node: NpmPackage): Component {
  const inside = Object.entries(process.versions).filter(([name]) => name !== "node" && name !== "modules");
  return {
    ...npmComponent(node),
    type: "framework",
    components: inside.map(([name, version]) => ({ type: "library", name, version: version ?? "" })),
  };
}

/** A bill of materials in CycloneDX 1.6. Without time and serial number, so that building twice gives the same bytes. */
export function billOfMaterials({ project, node, npm, debian }: Materials): string {
  const bill = {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: { ...npmComponent(project), type: "application" } },
    components: [nodeComponent(node), ...npm.map(npmComponent), ...debian.map(debianComponent)],
  };
  return `${JSON.stringify(bill, undefined, 2)}\n`;
}
