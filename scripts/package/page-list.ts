import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { sha256 } from "./archive.ts";
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

/** What was recorded of a file: its runs as the list has them, in lines. */
export interface RecordedPages {
  readonly name: string;
  readonly identity: string;
  readonly runs: readonly string[];
}

/** Where the recorded pages of an architecture are kept. */
export function recordFile(arch: Architecture): string {
  return join(import.meta.dirname, `pages-${arch}.json`);
}

/** Identifies the file whose pages were recorded; for the executable, its Node. */
export function identityOf(folder: string, name: string): string {
  return name === PROGRAM ? `node-${process.versions.node}` : sha256(readFileSync(join(folder, name)));
}

/** Runs as the list has them, in lines. */
export function linesOf(runs: readonly Run[]): string[] {
  const lines: string[] = [];
  for (const { first, count } of runs) {
    const run = `${first}+${count}`;
    const line = lines.at(-1);
    if (line !== undefined && line.length + run.length < LINE_CHARACTERS) lines[lines.length - 1] = `${line} ${run}`;
    else lines.push(run);
  }
  return lines;
}

/**
 * Writes the list of pages that the launcher reads ahead. These are the recorded ones (record-pages.ts) of files that
 * are the same here, and the agent's script at the end of the executable. They come from a recording because two builds
 * must give the same bytes, and each run touches other pages. Throws where the executable is another Node than the
 * recorded one; libraries of another machine are left out.
 */
export function writePageList(arch: Architecture, folder: string): void {
  const file = recordFile(arch);
  const recorded = existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as RecordedPages[]) : [];
  const lines: string[] = [];
  for (const { name, identity, runs } of recorded) {
    const own = existsSync(join(folder, name)) ? identityOf(folder, name) : "none";
    if (own === identity) lines.push(name, ...runs);
    else if (name === PROGRAM) {
      throw new Error(`the pages of ${identity} are recorded, and this is ${own}: run test/package/record-pages.ts`);
    }
  }
  lines.push(PROGRAM, ...linesOf([scriptPages(join(folder, PROGRAM))]));
  writeFileSync(join(folder, LIST), `${lines.join("\n")}\n`);
}

/** The pages of an executable that hold the agent's script and its code cache: all of them are read. */
export function scriptPages(program: string): Run {
  const { offset, sizeBytes } = lastReadOnlySegment(program);
  return { first: Math.floor(offset / PAGE_BYTES), count: Math.ceil(sizeBytes / PAGE_BYTES) };
}
