import { copyFileSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type Architecture, runTool, toolFor } from "./toolchain.ts";

/** Machines by readelf's names. */
const MACHINES: Readonly<Record<Architecture, string>> = { x64: "Advanced Micro Devices X86-64", arm64: "AArch64" };

/** Whether the file is of the ELF format. */
export function isElf(file: string): boolean {
  return readFileSync(file).subarray(0, 4).equals(Buffer.from("\x7fELF"));
}

/** Whether an ELF file is for the architecture. */
export function isFor(arch: Architecture, file: string): boolean {
  return /^ *Machine: *(.*)$/m.exec(runTool("readelf", ["-hW", file]))?.[1] === MACHINES[arch];
}

/** Names of the libraries that a file names as needed (DT_NEEDED). */
export function neededLibraries(file: string): string[] {
  return [...runTool("readelf", ["-dW", file]).matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(([, name]) => name ?? "");
}

/** Whether the file names folders to look for libraries in, which would be the image's. */
export function hasRunPath(file: string): boolean {
  return /\((RPATH|RUNPATH)\)/.test(runTool("readelf", ["-dW", file]));
}

/** Whether the kernel would make the stack executable: the header says so, or is not there. */
export function hasExecutableStack(file: string): boolean {
  const flags = /GNU_STACK\s.*?\s([RWE]{2,3})\s/.exec(runTool("readelf", ["-lW", file]))?.[1];
  return flags === undefined || flags.includes("E");
}

/** Whether code or constants have addresses that the loader writes when it loads the file. */
export function hasTextRelocations(file: string): boolean {
  return /\(TEXTREL\)|\(FLAGS\).*\bTEXTREL\b/.test(runTool("readelf", ["-dW", file]));
}

/** A part of a file that is mapped (PT_LOAD of elf(5)). */
export interface Segment {
  readonly offset: number;
  readonly address: number;
  readonly fileBytes: number;
  readonly memoryBytes: number;
  /** Some of R, W and E. */
  readonly flags: string;
}

/** All parts of a file that are mapped, in the file's order. */
export function loadedSegments(file: string): Segment[] {
  const rows = runTool("readelf", ["-lW", file]).matchAll(
    /^ +LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+) (0x\w+) ([RWE ]{3}) 0x/gm,
  );
  return Array.from(rows, ([, offset, address, fileBytes, memoryBytes, flags = ""]) => ({
    offset: Number(offset),
    address: Number(address),
    fileBytes: Number(fileBytes),
    memoryBytes: Number(memoryBytes),
    flags: flags.replaceAll(" ", ""),
  }));
}

/** The last part of a file that is mapped read-only: in an executable made by pkg, its payload. */
export function lastReadOnlySegment(file: string): { readonly offset: number; readonly sizeBytes: number } {
  const last = loadedSegments(file).findLast(({ flags }) => flags === "R");
  if (last === undefined) throw new Error(`${file} has no part that is read alone`);
  return { offset: last.offset, sizeBytes: last.fileBytes };
}

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
export function locate(arch: Architecture, name: string): string {
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
