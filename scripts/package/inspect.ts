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

/** Every file below a folder, sorted. */
export function filesBelow(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted();
}

/**
 * Finds what is wrong with a distribution. Files may be for another machine, need something of the image, name paths of
 * the build machine, or be such that others could change them. Programs may have executable stacks, or written memory
 * that the agent would give back. Empty: nothing is wrong.
 *
 * @param rule the C file that says what is given back, if not the agent's own
 */
export function inspect(arch: Architecture, folder: string, buildPaths: readonly string[], rule?: string): string[] {
  using givenBack = new GivenBackPages(rule);
  const files = filesBelow(folder);
  const shipped = new Set(files.map((file) => basename(file)));
  const faults = files.flatMap((file) => {
    const paths = buildPathsIn(readFileSync(file), buildPaths);
    const problems = paths.map((path) => `holds the build machine's path ${path}`);
    if ((statSync(file).mode & WRITABLE_BY_OTHERS) !== 0) problems.unshift("can be written by others than its owner");
    if (isElf(file)) {
      problems.push(...elfProblems(arch, file, shipped), ...memoryProblems(arch, file, givenBack));
    }
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

/** Characters that continue a path's name. */
const PART_OF_NAME = "[A-Za-z0-9._~%-]";

/**
 * Those of a build machine's folders whose paths occur in a file. `/project` occurs in `/project/src/main.c` and in
 * `file:///project`, and not in `https://example.com/project/` or in `/projects`: a checkout may have any short name.
 */
function buildPathsIn(bytes: Buffer, folders: readonly string[]): string[] {
  const text = bytes.toString("latin1");
  return folders.filter((folder) => {
    const path = Buffer.from(folder.replace(/\/$/, "")).toString("latin1");
    return new RegExp(`(?:file://|-[IL]|(?<!${PART_OF_NAME}|/))${RegExp.escape(path)}(?!${PART_OF_NAME})`).test(text);
  });
}

/** The agent's own rule of the pages that it gives back. */
const AGENTS_RULE = join(import.meta.dirname, "../../src/agent/native/addon/code_pages.c");

/** Sizes of a kernel's pages, in bytes. Of arm64 each kernel has one of three. */
const PAGE_SIZES_BYTES: Readonly<Record<Architecture, readonly number[]>> = {
  x64: [4096],
  arm64: [4096, 16_384, 65_536],
};

/** Pages of a program or library, by the addresses in its file. */
export interface PageRange {
  readonly pageBytes: number;
  readonly start: number;
  readonly end: number;
}

/** Asks the agent's own code, compiled for this machine, which pages of a file it would give back. */
export class GivenBackPages implements Disposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "guest-agent-code-pages-"));
  readonly #program = join(this.#folder, "code-pages");

  /** @param rule the C file that defines `code_pages` */
  constructor(rule: string = AGENTS_RULE) {
    compile(process.arch as Architecture, import.meta.dirname, ["code-pages.c", rule, "-o", this.#program]);
  }

  /** The pages of an ELF file that the agent gives back, for each of these sizes of the kernel's pages. */
  of(file: string, pageSizesBytes: readonly number[]): PageRange[] {
    const lines = runTool(this.#program, [file, ...pageSizesBytes.map(String)]).split("\n");
    return lines.filter(Boolean).map((line) => {
      const [pageBytes = NaN, start = NaN, end = NaN] = line.split(" ").map(Number);
      return { pageBytes, start, end };
    });
  }

  /** The ranges with a page that a writable segment touches: the agent would lose what was written there. */
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
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
