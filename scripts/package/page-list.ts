import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { sha256 } from "./archive.ts";
import { lastReadOnlySegment } from "./elf.ts";
import type { Architecture } from "./toolchain.ts";

/** Size of the pages in the list, whatever page size the kernel uses. */
export const PAGE_BYTES = 4096;
/** The agent's executable. The list beside it is read by the launcher. */
export const PROGRAM = "agent.bin";
const LIST = "agent.pages";
const LINE_CHARACTERS = 120;

/** Consecutive pages of a file. */
export interface Run {
  readonly first: number;
  readonly count: number;
}

/** The recording of a file: its runs of pages, as lines of the list. */
export interface RecordedPages {
  readonly name: string;
  readonly identity: string;
  readonly runs: readonly string[];
}

/** Where the recorded pages of an architecture are kept. */
export function recordFile(arch: Architecture): string {
  return join(import.meta.dirname, `pages-${arch}.json`);
}

/** Identifies the file whose pages were recorded. For the executable this is the version of its Node. */
export function identityOf(directory: string, name: string): string {
  return name === PROGRAM ? `node-${process.versions.node}` : sha256(readFileSync(join(directory, name)));
}

/** Formats runs of pages as lines of the list. */
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
 * Writes the list of pages that the launcher reads ahead. It contains the recorded pages (record-pages.ts) of files
 * that are the same as in the recording; libraries of another machine are left out. The agent's script at the end of
 * the executable is added. A recording is used because each run of the agent touches other pages, but two builds must
 * give the same bytes. Throws if the executable contains another Node than the recording.
 */
export function writePageList(arch: Architecture, directory: string): void {
  const file = recordFile(arch);
  const recorded = existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as RecordedPages[]) : [];
  const lines: string[] = [];
  for (const { name, identity, runs } of recorded) {
    const own = existsSync(join(directory, name)) ? identityOf(directory, name) : "none";
    if (own === identity) lines.push(name, ...runs);
    else if (name === PROGRAM) {
      throw new Error(`the pages of ${identity} are recorded, and this is ${own}: run test/package/record-pages.ts`);
    }
  }
  lines.push(PROGRAM, ...linesOf([scriptPages(join(directory, PROGRAM))]));
  writeFileSync(join(directory, LIST), `${lines.join("\n")}\n`);
}

/** The pages of an executable that contain the agent's script and its code cache. The agent reads all of them. */
export function scriptPages(program: string): Run {
  const { offset, sizeBytes } = lastReadOnlySegment(program);
  return { first: Math.floor(offset / PAGE_BYTES), count: Math.ceil(sizeBytes / PAGE_BYTES) };
}
