import { copyFileSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type Architecture, runTool, toolFor } from "./toolchain.ts";

/** Names of the machines in the output of readelf. */
const MACHINES: Readonly<Record<Architecture, string>> = { x64: "Advanced Micro Devices X86-64", arm64: "AArch64" };

/** Whether the file is of the ELF format. */
export function isElf(file: string): boolean {
  return readFileSync(file).subarray(0, 4).equals(Buffer.from("\x7fELF"));
}

/** Whether an ELF file is for the architecture. */
export function isFor(arch: Architecture, file: string): boolean {
  return /^ *Machine: *(.*)$/m.exec(runTool("readelf", ["-hW", file]))?.[1] === MACHINES[arch];
}

/** Names of the libraries that a file requires (DT_NEEDED). */
export function neededLibraries(file: string): string[] {
  return [...runTool("readelf", ["-dW", file]).matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(([, name]) => name ?? "");
}

/** Whether the file contains a search path for libraries, which would make the loader search directories of the image. */
export function hasRunPath(file: string): boolean {
  return /\((RPATH|RUNPATH)\)/.test(runTool("readelf", ["-dW", file]));
}

/** Whether the kernel would make the stack executable, because the header requests it or is missing. */
export function hasExecutableStack(file: string): boolean {
  const flags = /GNU_STACK\s.*?\s([RWE]{2,3})\s/.exec(runTool("readelf", ["-lW", file]))?.[1];
  return flags === undefined || flags.includes("E");
}

/** Whether the loader would have to change code or constants when it loads the file. */
export function hasTextRelocations(file: string): boolean {
  return /\(TEXTREL\)|\(FLAGS\).*\bTEXTREL\b/.test(runTool("readelf", ["-dW", file]));
}

/** A part of a file that is mapped into memory (PT_LOAD of elf(5)). */
export interface Segment {
  readonly offset: number;
  readonly address: number;
  readonly fileBytes: number;
  readonly memoryBytes: number;
  /** A combination of the letters R, W and E. */
  readonly flags: string;
}

/** All parts of a file that are mapped, in the order of the file. */
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

/**
 * The last part of a file that is mapped read-only. In an executable made by pkg, this contains the script and the
 * assets.
 */
export function lastReadOnlySegment(file: string): { readonly offset: number; readonly sizeBytes: number } {
  const last = loadedSegments(file).findLast(({ flags }) => flags === "R");
  if (last === undefined) throw new Error(`${file} has no part that is read alone`);
  return { offset: last.offset, sizeBytes: last.fileBytes };
}

/** The dynamic loader of the C library of each architecture. */
const LOADERS: Readonly<Record<Architecture, string>> = {
  x64: "ld-linux-x86-64.so.2",
  arm64: "ld-linux-aarch64.so.1",
};

/** A shipped library. */
export interface Library {
  /** Its name in the directory of libraries. */
  readonly name: string;
  /** Path of the file from which it was copied. */
  readonly source: string;
}

/**
 * Copies the loader and all libraries that the files require, directly or indirectly, into a directory. They come from
 * this machine or from the cross compiler. Returns them by name.
 */
export function collectLibraries(arch: Architecture, files: readonly string[], directory: string): readonly Library[] {
  mkdirSync(directory, { recursive: true });
  const sources = new Map<string, string>();
  const waiting = [...files.flatMap(neededLibraries), LOADERS[arch]];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (sources.has(name)) continue;
    const source = locate(arch, name);
    sources.set(name, source);
    waiting.push(...neededLibraries(source));
    copyFileSync(source, join(directory, name));
    if (name !== LOADERS[arch]) runTool(toolFor(arch, "strip"), ["--strip-unneeded", join(directory, name)]);
  }
  ignorePreloads(join(directory, LOADERS[arch]));
  writeFileSync(join(directory, "openssl.cnf"), "");
  return Array.from(sources, ([name, source]) => ({ name, source })).toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** Path of a library, as the compiler reports it. */
export function locate(arch: Architecture, name: string): string {
  const path = runTool(toolFor(arch, "gcc"), [`-print-file-name=${name}`]).trim();
  if (basename(path) === path) throw new Error(`${name} is nowhere that the compiler for ${arch} looks`);
  return realpathSync(path);
}

/**
 * Makes the loader ignore /etc/ld.so.preload of the image. The loader has no option for that, so the path inside the
 * loader is replaced by an empty one, which never exists.
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
