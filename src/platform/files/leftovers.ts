import { opendir } from "node:fs/promises";
import { constants } from "node:fs";
import type { Folder } from "./folder.ts";
import type { FileThreads } from "./threads.ts";

const TEMPORARY = /^\.svc-guest-[0-9a-f]{24}\.tmp$/;
/** No write stands still for so long. A younger file may be that of an agent that lives, of another sandbox even. */
const AGE_NS = 3_600_000_000_000n;
/** Entries of a folder that are looked at: a write does not wait for a folder of millions. */
const ENTRIES_LIMIT = 10_000;
/** Folders that are remembered as looked through; then they are looked through anew. */
const FOLDERS_LIMIT = 1_024;

/** Temporary files that an agent left when it was killed, in folders of file systems where files need a name. */
export class Leftovers {
  readonly #threads: FileThreads;
  /** Inodes of folders. One of another file system with the same number is at worst not looked through. */
  readonly #seen = new Set<bigint>();

  constructor(threads: FileThreads) {
    this.#threads = threads;
  }

  /**
   * Removes them from a folder that this agent has not looked through yet: what has an agent's name, is a regular file of the
   * agent's own user with one link, and was not written to for an hour. Never rejects: what cannot be removed stays.
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
      // A folder that cannot be listed can be written to all the same.
    }
  }
}

async function temporariesIn(folder: Folder): Promise<Buffer[]> {
  const found: Buffer[] = [];
  let entries = 0;
  for await (const { name } of await opendir(folder.link, { encoding: "latin1" })) {
    if (TEMPORARY.test(name)) found.push(Buffer.from(name));
    if (++entries === ENTRIES_LIMIT) break;
  }
  return found;
}

async function isLeftover(folder: Folder, name: Uint8Array): Promise<boolean> {
  // Not by way of a link, and whatever cannot be opened is none.
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
