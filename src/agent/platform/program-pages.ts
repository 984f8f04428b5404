import { closeSync, openSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Addon, ADVICE_DONT_NEED, ADVICE_NORMAL, ADVICE_RANDOM } from "../native/index.ts";

/** The launcher, the agent's executable and the libraries' folder, in the bundle's folder. */
const PROGRAMS = ["guest-agent", "agent.bin"];
const LIBRARIES = "lib";

/** The page-cache pages of the bundle's programs. They count in the guest's memory, and in its snapshot. */
export class ProgramPages {
  readonly #addon: Pick<Addon, "adviseCode" | "dropFileCache">;
  readonly #bundleFolder: string;

  constructor(addon: Pick<Addon, "adviseCode" | "dropFileCache">, bundleFolder: string) {
    this.#addon = addon;
    this.#bundleFolder = bundleFolder;
  }

  /**
   * Makes the kernel read only what is touched, until the first `giveBack`. The launcher has asked for what a start
   * needs; around any other page the kernel would read up to 8 MB, by the device's setting. (Linux from 6.16 on does so
   * for code all the same.) Not for longer: when memory is short, the kernel takes such pages first, however often they
   * are used. A test then had 8,000 reads instead of 60 (decision 0020).
   */
  readOnlyTouched(): void {
    this.#addon.adviseCode(ADVICE_RANDOM);
  }

  /**
   * Drops pages that nobody used since the last time from the page cache, and unmaps the others. Those stay in the page
   * cache until the next time, and longer if they are used. What is used again is mapped again, sixteen pages at a
   * time. Takes some 5 ms.
   */
  giveBack(): void {
    for (const file of this.#files()) this.#drop(file);
    this.#addon.adviseCode(ADVICE_NORMAL);
    this.#addon.adviseCode(ADVICE_DONT_NEED);
  }

  #files(): string[] {
    const libraries = join(this.#bundleFolder, LIBRARIES);
    try {
      return [
        ...PROGRAMS.map((name) => join(this.#bundleFolder, name)),
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
      // A user may run a program without the right to read it. Its pages then stay.
    }
  }
}
