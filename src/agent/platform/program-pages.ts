import { closeSync, openSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Addon, ADVICE_DONT_NEED, ADVICE_NORMAL, ADVICE_RANDOM } from "../native/index.ts";

/**
 * Files and directories in the bundle's directory: the launcher, the agent's executable, and the directory of the
 * libraries.
 */
const PROGRAMS = ["guest-agent", "agent.bin"];
const LIBRARIES = "lib";

/** The page-cache pages of the bundle's programs. They count as guest memory and are part of a snapshot. */
export class ProgramPages {
  readonly #addon: Pick<Addon, "adviseCode" | "dropFileCache">;
  readonly #bundleDirectory: string;

  constructor(addon: Pick<Addon, "adviseCode" | "dropFileCache">, bundleDirectory: string) {
    this.#addon = addon;
    this.#bundleDirectory = bundleDirectory;
  }

  /**
   * Turns off read-ahead for the agent's code until the first `release`. During the start, read-ahead is useless: the
   * launcher has already read the pages that a start needs, and for any other page the kernel would read up to 8 MB
   * around it. After the start, read-ahead must be on: when memory is short, the kernel first evicts pages without
   * read-ahead. In a test, this caused 8,000 reads instead of 60 (decision 0020).
   */
  readOnlyTouched(): void {
    this.#addon.adviseCode(ADVICE_RANDOM);
  }

  /**
   * Removes all unmapped pages from the page cache, then unmaps all other pages. The kernel maps a page again when the
   * agent uses it, so each call removes the pages that were not used since the call before. Takes some 5 ms.
   */
  release(): void {
    for (const file of this.#files()) this.#drop(file);
    this.#addon.adviseCode(ADVICE_NORMAL);
    this.#addon.adviseCode(ADVICE_DONT_NEED);
  }

  #files(): string[] {
    const libraries = join(this.#bundleDirectory, LIBRARIES);
    try {
      return [
        ...PROGRAMS.map((name) => join(this.#bundleDirectory, name)),
        ...readdirSync(libraries).map((name) => join(libraries, name)),
      ];
    } catch {
      return [];
    }
  }

  #drop(file: string): void {
    try {
      const fd = openSync(file, "r");
      this.#addon.dropFileCache(fd);
      closeSync(fd);
    } catch {
      // The agent's user may be allowed to execute a program but not to read it. In this case its pages cannot be
      // released.
    }
  }
}
