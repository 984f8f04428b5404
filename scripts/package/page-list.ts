import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { lastReadOnlySegment } from "./elf.ts";
import type { Architecture } from "./toolchain.ts";

/** Unit of the runs, whatever the kernel's page size. */
export const PAGE_BYTES = 4096;
/** The agent's executable, and the list beside it, which the launcher reads. */
export const PROGRAM = "agent.bin";
const LIST = "agent.pages";
const LINE_CHARACTERS = 120;

/** Pages of a file that are read one after another. */
export interface Run {
  readonly first: number;
  readonly count: number;
}

/** Where the recorded pages of an architecture are kept. */
export function recordFile(arch: Architecture): string {
  return join(import.meta.dirname, `pages-${arch}.txt`);
}

/** Identifies the file whose pages were recorded; for the executable, its Node. */
export function identityOf(folder: string, name: string): string {
  if (name === PROGRAM) return `node-${process.versions.node}`;
  return createHash("sha256")
    .update(readFileSync(join(folder, name)))
    .digest("hex");
}

/** One line for the name, and lines of runs. */
export function linesOf(name: string, runs: readonly Run[]): string {
  let line = "";
  let text = `${name}\n`;
  for (const { first, count } of runs) {
    const run = `${first}+${count}`;
    if (line.length + run.length >= LINE_CHARACTERS) {
      text += `${line}\n`;
      line = "";
    }
    line += line === "" ? run : ` ${run}`;
  }
  return line === "" ? text : `${text}${line}\n`;
}

/**
 * Writes the list of pages that the launcher reads ahead. These are the recorded ones (record-pages.ts) of files that
 * are the same here, and the agent's script at the end of the executable. They come from a recording because two builds
 * must give the same bytes, and each run touches other pages. Throws where the executable is another Node than the
 * recorded one; libraries of another machine are left out.
 */
export function writePageList(arch: Architecture, folder: string): void {
  const recorded = existsSync(recordFile(arch)) ? readFileSync(recordFile(arch), "utf8") : "";
  let text = "";
  for (const [, name = "", identity = "", runs = ""] of recorded.matchAll(/^([a-z]\S*) (\S+)\n((?:\d.*\n)*)/gm)) {
    const own = existsSync(join(folder, name)) ? identityOf(folder, name) : "none";
    if (own === identity) text += `${name}\n${runs}`;
    else if (name === PROGRAM) {
      throw new Error(`the pages of ${identity} are recorded, and this is ${own}: run test/package/record-pages.ts`);
    }
  }
  text += linesOf(PROGRAM, [scriptPages(join(folder, PROGRAM))]);
  writeFileSync(join(folder, LIST), text);
}

/** The pages of an executable that hold the agent's script and its code cache: all of them are read. */
export function scriptPages(program: string): Run {
  const { offset, sizeBytes } = lastReadOnlySegment(program);
  return { first: Math.floor(offset / PAGE_BYTES), count: Math.ceil(sizeBytes / PAGE_BYTES) };
}
