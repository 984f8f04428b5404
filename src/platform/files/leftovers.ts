import { constants, opendir } from "node:fs";
import { promisify } from "node:util";
import type { Folder } from "./folder.ts";
import type { FileThreads } from "./threads.ts";

const TEMPORARY = /^\.svc-guest-[0-9a-f]{24}\.tmp$/;
/** No write pauses this long. A younger file may belong to a living agent, even of another sandbox. */
const AGE_NS = 3_600_000_000_000n;
/** Most entries of a folder that are checked: a write must not wait for a folder of millions. */
const ENTRIES_LIMIT = 10_000;
/** Checked folders that are remembered. At this number all are forgotten, and checked again. */
const FOLDERS_LIMIT = 1_024;
const openFolder = promisify(opendir);

/** Removes temporary files that killed agents left, on file systems where a new file needs a name. */
export class Leftovers {
  readonly #threads: FileThreads;
  /** Inodes of checked folders. At worst a folder of another file system with the same number is not checked. */
  readonly #seen = new Set<bigint>();

  constructor(threads: FileThreads) {
    this.#threads = threads;
  }

  /**
   * Removes them from a folder that this agent has not checked yet: entries with an agent's temporary name that are
   * regular files of the agent's own user, with one link, and unchanged for an hour. Never rejects.
   */
  async removeFrom(folder: Folder): Promise<void> {
    try {
      const { inode } = await folder.attributes();
      if (this.#seen.has(inode)) return;
      if (this.#seen.size >= FOLDERS_LIMIT) this.#seen.clear();
      this.#seen.add(inode);
      for (const name of await this.#threads.step("create", () => temporariesIn(folder))) {
        if (await isLeftover(folder, name)) await folder.remove(name, false);
      }
    } catch {
      // A folder that cannot be listed may still be writable.
    }
  }
}

async function temporariesIn(folder: Folder): Promise<Buffer[]> {
  const found: Buffer[] = [];
  let entries = 0;
  for await (const { name } of await openFolder(folder.link, { encoding: "latin1" })) {
    if (TEMPORARY.test(name)) found.push(Buffer.from(name));
    if (++entries === ENTRIES_LIMIT) break;
  }
  return found;
}

async function isLeftover(folder: Folder, name: Uint8Array): Promise<boolean> {
  // Follows no link. What cannot be opened is not a leftover.
  const file = await folder.open("create", name, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => undefined);
  if (file === undefined) return false;
  try {
    const { type, uid, links, modifiedNs } = await file.attributes("create");
    const ageNs = BigInt(Date.now()) * 1_000_000n - modifiedNs;
    return type === "regular" && uid === process.geteuid?.() && links === 1n && ageNs > AGE_NS;
  } finally {
    await file.close();
  }
}
