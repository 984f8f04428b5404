import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { loadedSegments } from "./elf.ts";
import { type Architecture, compile, runTool } from "./toolchain.ts";

/** The agent's own rule of the pages that it gives back. */
const AGENTS_RULE = join(import.meta.dirname, "../../src/agent/native/addon/code_pages.c");

/** Sizes of a kernel's pages, in bytes. Of arm64 each kernel has one of three. */
export const PAGE_SIZES_BYTES: Readonly<Record<Architecture, readonly number[]>> = {
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
