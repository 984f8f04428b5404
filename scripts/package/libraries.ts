import { copyFileSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

import { neededLibraries } from "./elf.ts";
import { type Architecture, runTool, toolFor } from "./toolchain.ts";

/** The dynamic loader of each architecture's C library. */
const LOADERS: Readonly<Record<Architecture, string>> = {
  x64: "ld-linux-x86-64.so.2",
  arm64: "ld-linux-aarch64.so.1",
};

/** A library that is shipped. */
export interface Library {
  /** Its name in the folder. */
  readonly name: string;
  /** Path of the file that it was copied from. */
  readonly source: string;
}

/**
 * Puts the loader and every library that the files need, directly or not, into a folder. They are this machine's, or
 * those of the cross compiler. Returns them by name.
 */
export function collectLibraries(arch: Architecture, files: readonly string[], folder: string): readonly Library[] {
  mkdirSync(folder, { recursive: true });
  const sources = new Map<string, string>();
  const waiting = [...files.flatMap(neededLibraries), LOADERS[arch]];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (sources.has(name)) continue;
    const source = locate(arch, name);
    sources.set(name, source);
    waiting.push(...neededLibraries(source));
    copyFileSync(source, join(folder, name));
    if (name !== LOADERS[arch]) runTool(toolFor(arch, "strip"), ["--strip-unneeded", join(folder, name)]);
  }
  ignorePreloads(join(folder, LOADERS[arch]));
  writeFileSync(join(folder, "openssl.cnf"), "");
  return Array.from(sources, ([name, source]) => ({ name, source })).toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** Path of a library, from the compiler. */
function locate(arch: Architecture, name: string): string {
  const path = runTool(toolFor(arch, "gcc"), [`-print-file-name=${name}`]).trim();
  if (basename(path) === path) throw new Error(`${name} is nowhere that the compiler for ${arch} looks`);
  return realpathSync(path);
}

/**
 * The loader reads /etc/ld.so.preload of the image, for which there is no switch. An empty name, of a file that never
 * exists, takes its place.
 */
function ignorePreloads(loader: string): void {
  const bytes = readFileSync(loader);
  const name = Buffer.from("\0/etc/ld.so.preload\0");
  const at = bytes.indexOf(name);
  if (at < 0 || bytes.indexOf(name, at + 1) >= 0) {
    throw new Error(`${loader} does not hold the name of ld.so.preload exactly once: another C library than expected`);
  }
  bytes.fill(0, at + 1, at + name.length - 1);
  writeFileSync(loader, bytes);
}

/** The static C library of the launcher. */
export function staticLibrary(arch: Architecture): string {
  return locate(arch, "libc.a");
}
