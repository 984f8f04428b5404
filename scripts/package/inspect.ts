import { readdirSync, readFileSync, statSync } from "node:fs";
import { basename, join, relative } from "node:path";

import { buildPathsIn } from "./build-paths.ts";
import { hasExecutableStack, hasRunPath, isElf, isFor, neededLibraries } from "./elf.ts";
import type { Architecture } from "./toolchain.ts";

const WRITABLE_BY_OTHERS = 0o022;

/** Every file below a folder, sorted. */
export function filesBelow(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted();
}

/**
 * What is wrong with a distribution: a file for another machine, one that would need something of the image, an
 * executable stack, a file that others could change, or a path of the machine that built it. Empty: nothing.
 */
export function inspect(arch: Architecture, folder: string, buildPaths: readonly string[]): string[] {
  const files = filesBelow(folder);
  const shipped = new Set(files.map((file) => basename(file)));
  const faults = files.flatMap((file) => {
    const problems = [...modeProblems(file), ...pathProblems(file, buildPaths)];
    if (isElf(file)) problems.push(...elfProblems(arch, file, shipped));
    return problems.map((problem) => `${relative(folder, file)} ${problem}`);
  });
  if (!files.some(isElf)) faults.push("holds no executable at all");
  return faults;
}

function elfProblems(arch: Architecture, file: string, shipped: ReadonlySet<string>): string[] {
  const problems = neededLibraries(file)
    .filter((name) => !shipped.has(name))
    .map((name) => `needs ${name}, which is not shipped`);
  if (!isFor(arch, file)) problems.push(`is not for ${arch}`);
  if (hasRunPath(file)) problems.push("names folders to look for libraries in");
  if (hasExecutableStack(file)) problems.push("asks for an executable stack");
  return problems;
}

function modeProblems(file: string): string[] {
  return (statSync(file).mode & WRITABLE_BY_OTHERS) === 0 ? [] : ["can be written by others than its owner"];
}

function pathProblems(file: string, buildPaths: readonly string[]): string[] {
  const bytes = readFileSync(file);
  return buildPathsIn(bytes, buildPaths).map((path) => `holds the build machine's path ${path}`);
}
