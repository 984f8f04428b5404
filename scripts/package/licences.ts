import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Materials } from "./bill-of-materials.ts";
import { licenceFiles, type NpmPackage } from "./npm-packages.ts";

/** Puts the licences of everything shipped into a folder, one folder of it for each package. */
export function collectLicences({ project, node, npm, debian }: Materials, folder: string): void {
  for (const source of [project, node, ...npm]) copyLicences(source, join(folder, source.name));
  for (const { name, copyright } of debian) {
    mkdirSync(join(folder, "debian", name), { recursive: true });
    copyFileSync(copyright, join(folder, "debian", name, "copyright"));
  }
}

/** A package without such a file says in its manifest what it is under. */
function copyLicences(source: NpmPackage, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const files = licenceFiles(source);
  for (const file of files) copyFileSync(join(source.folder, file), join(folder, file));
  if (files.length === 0) {
    writeFileSync(join(folder, "LICENSE"), `${source.name} ${source.version}: ${source.license}\n`);
  }
}
