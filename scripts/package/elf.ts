import { closeSync, openSync, readSync } from "node:fs";

import { type Architecture, runTool } from "./toolchain.ts";

/** e_machine of each architecture (elf(5)). */
const MACHINES: Readonly<Record<Architecture, number>> = { x64: 62, arm64: 183 };
const ELF_MAGIC = 0x7f454c46;
const ELF_CLASS_64 = 2;

/** The machine that a file is for; undefined: it is no ELF file. */
function machineOf(file: string): number | undefined {
  const head = Buffer.alloc(20);
  const fd = openSync(file, "r");
  try {
    if (readSync(fd, head, 0, head.length, 0) < head.length || head.readUInt32BE(0) !== ELF_MAGIC) return undefined;
  } finally {
    closeSync(fd);
  }
  return head[4] === ELF_CLASS_64 ? head.readUInt16LE(18) : -1;
}

/** Whether the file is of the ELF format. */
export function isElf(file: string): boolean {
  return machineOf(file) !== undefined;
}

/** Whether an ELF file is for the architecture. */
export function isFor(arch: Architecture, file: string): boolean {
  return machineOf(file) === MACHINES[arch];
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
