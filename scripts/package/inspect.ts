import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, relative } from "node:path";
import {
  hasExecutableStack,
  hasRunPath,
  hasTextRelocations,
  isElf,
  isFor,
  loadedSegments,
  neededLibraries,
} from "./elf.ts";
import { type Architecture, compile, runTool } from "./toolchain.ts";

const WRITABLE_BY_OTHERS = 0o022;

/** All files below a directory, sorted. */
export function filesBelow(directory: string): string[] {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted();
}

/**
 * Inspects a distribution and returns its problems; the list is empty if there are none. Problems are files for another
 * machine, files that require something of the image, paths of the build machine, files that other users could change,
 * executable stacks, and memory that is written to although the agent would release it.
 *
 * @param rule the C file that decides which memory is released; default: the agent's own
 */
export function inspect(arch: Architecture, directory: string, buildPaths: readonly string[], rule?: string): string[] {
  using givenBack = new GivenBackPages(rule);
  const files = filesBelow(directory);
  const shipped = new Set(files.map((file) => basename(file)));
  const faults = files.flatMap((file) => {
    const paths = buildPathsIn(readFileSync(file), buildPaths);
    const problems = paths.map((path) => `holds the build machine's path ${path}`);
    if ((statSync(file).mode & WRITABLE_BY_OTHERS) !== 0) problems.unshift("can be written by others than its owner");
    if (isElf(file)) {
      problems.push(...elfProblems(arch, file, shipped), ...memoryProblems(arch, file, givenBack));
    }
    return problems.map((problem) => `${relative(directory, file)} ${problem}`);
  });
  if (!files.some(isElf)) faults.push("holds no executable at all");
  return faults;
}

function elfProblems(arch: Architecture, file: string, shipped: ReadonlySet<string>): string[] {
  const problems = neededLibraries(file)
    .filter((name) => !shipped.has(name))
    .map((name) => `needs ${name}, which is not shipped`);
  if (!isFor(arch, file)) problems.push(`is not for ${arch}`);
  if (hasRunPath(file)) problems.push("names directories to look for libraries in");
  if (hasExecutableStack(file)) problems.push("asks for an executable stack");
  return problems;
}

function memoryProblems(arch: Architecture, file: string, givenBack: GivenBackPages): string[] {
  const problems = givenBack
    .writtenOf(file, PAGE_SIZES_BYTES[arch])
    .map(
      ({ pageBytes, start, end }) =>
        `has a writable segment in 0x${start.toString(16)} to 0x${end.toString(16)}, which the agent would give back ` +
        `where pages have ${pageBytes} bytes`,
    );
  if (hasTextRelocations(file)) problems.push("has relocations in code, which the agent would give back");
  return problems;
}

/** Characters that can continue the name of a path. */
const PART_OF_NAME = "[A-Za-z0-9._~%-]";

/**
 * Returns those directories of a build machine whose paths occur in a file. A checkout may have a short name such as
 * `/project`. It occurs in `/project/src/main.c` and in `file:///project`, but not in `https://example.com/project/` or
 * in `/projects`.
 */
function buildPathsIn(bytes: Buffer, directories: readonly string[]): string[] {
  const text = bytes.toString("latin1");
  return directories.filter((directory) => {
    const path = Buffer.from(directory.replace(/\/$/, "")).toString("latin1");
    return new RegExp(`(?:file://|-[IL]|(?<!${PART_OF_NAME}|/))${RegExp.escape(path)}(?!${PART_OF_NAME})`).test(text);
  });
}

/** The part of the agent that decides which pages it releases. */
const AGENTS_RULE = join(import.meta.dirname, "../../src/agent/native/addon/code_pages.c");

/** Page sizes of kernels, in bytes. A kernel for arm64 uses one of three. */
const PAGE_SIZES_BYTES: Readonly<Record<Architecture, readonly number[]>> = {
  x64: [4096],
  arm64: [4096, 16_384, 65_536],
};

/** Pages of a program or library, as addresses in its file. */
export interface PageRange {
  readonly pageBytes: number;
  readonly start: number;
  readonly end: number;
}

/** Runs the agent's own code, compiled for this machine, to find out which pages of a file it would release. */
export class GivenBackPages implements Disposable {
  readonly #directory = mkdtempSync(join(tmpdir(), "guest-agent-code-pages-"));
  readonly #program = join(this.#directory, "code-pages");

  /** @param rule the C file that defines `code_pages` */
  constructor(rule: string = AGENTS_RULE) {
    compile(process.arch as Architecture, import.meta.dirname, ["code-pages.c", rule, "-o", this.#program]);
  }

  /** The pages of an ELF file that the agent releases, for each of these page sizes. */
  of(file: string, pageSizesBytes: readonly number[]): PageRange[] {
    const lines = runTool(this.#program, [file, ...pageSizesBytes.map(String)]).split("\n");
    return lines.filter(Boolean).map((line) => {
      const [pageBytes = NaN, start = NaN, end = NaN] = line.split(" ").map(Number);
      return { pageBytes, start, end };
    });
  }

  /**
   * Returns the released ranges that share a page with a writable segment. If the agent released such a page, it would
   * lose the data that was written there.
   */
  writtenOf(file: string, pageSizesBytes: readonly number[]): PageRange[] {
    const writable = loadedSegments(file).filter(({ flags }) => flags.includes("W"));
    return this.of(file, pageSizesBytes).filter(({ pageBytes, start, end }) =>
      writable.some(
        ({ address, memoryBytes }) =>
          Math.floor(address / pageBytes) * pageBytes < end &&
          Math.ceil((address + memoryBytes) / pageBytes) * pageBytes > start,
      ),
    );
  }

  [Symbol.dispose](): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
