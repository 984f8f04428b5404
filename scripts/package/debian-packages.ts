import { existsSync } from "node:fs";

import { runTool } from "./toolchain.ts";

/** A package of Debian that a shipped library comes from. */
export interface DebianPackage {
  readonly name: string;
  readonly version: string;
  readonly architecture: string;
  /** Its file of copyrights and licences. */
  readonly copyright: string;
}

/** The packages that own the files, by name. */
export function debianPackagesOf(files: readonly string[]): DebianPackage[] {
  const names = new Set(files.map(ownerOf));
  return [...names].toSorted().map(describe);
}

/** dpkg knows a file by the path that its package gave it, which may lack the /usr that /lib is a link into. */
function ownerOf(file: string): string {
  const paths = [file, file.replace(/^\/usr\//, "/")];
  for (const path of paths) {
    const owner = search(path);
    if (owner !== undefined) return owner;
  }
  throw new Error(`${file} is of no Debian package, so its licence is not known: build on Debian`);
}

function search(path: string): string | undefined {
  try {
    return /^([^\s,]+): /.exec(runTool("dpkg-query", ["-S", path]))?.[1];
  } catch {
    return undefined;
  }
}

function describe(owner: string): DebianPackage {
  const format = "${Package} ${Version} ${Architecture}";
  const [name = "", version = "", architecture = ""] = runTool("dpkg-query", ["-W", "-f", format, owner]).split(" ");
  const copyright = `/usr/share/doc/${name}/copyright`;
  if (!existsSync(copyright)) throw new Error(`${copyright} is missing: reinstall the package ${name}`);
  return { name, version, architecture, copyright };
}
