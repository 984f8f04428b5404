import { constants, opendir } from "node:fs";
import { promisify } from "node:util";
import type { OpenFolder } from "../open/folder.ts";
import { removeEntry } from "./make.ts";

/** Names of files before they have their own, on file systems that have no files without a name. */
const TEMPORARY = /^\.svc-guest-[0-9a-f]{24}\.tmp$/;
/** No write pauses this long. A younger file may belong to a living agent, even of another sandbox. */
const AGE_NS = 3_600_000_000_000n;
/** Most entries of a directory that are checked: a write must not wait for a directory of millions. */
const ENTRIES_LIMIT = 10_000;
/** Checked directories that are remembered. At this number all are forgotten, and checked again. */
const FOLDERS_LIMIT = 1_024;
const openFolder = promisify(opendir);

/** A name that nobody else has, of the form TEMPORARY. */
export function temporaryName(): Buffer {
  const { randomBytes } = process.getBuiltinModule("node:crypto");
  return Buffer.from(`.svc-guest-${randomBytes(12).toString("hex")}.tmp`);
}

/** Removes temporary files that killed agents left, on file systems where a new file needs a name. */
export class Leftovers {
  /** Inodes of checked directories. At worst one of another file system with the same number is not checked. */
  readonly #seen = new Set<bigint>();

  /**
   * Removes them from a directory that this agent has not checked yet. They are regular files of the agent's own user
   * with an agent's temporary name, one link, and no change for an hour. Never rejects.
   */
  async removeFrom(folder: OpenFolder): Promise<void> {
    try {
      const { inode } = await folder.attributes("create");
      if (this.#seen.has(inode)) return;
      if (this.#seen.size >= FOLDERS_LIMIT) this.#seen.clear();
      this.#seen.add(inode);
      const how = { step: "create", on: [folder.descriptor] } as const;
      for (const name of await folder.work.step(how, () => temporariesIn(folder))) {
        if (await isLeftover(folder, name)) await removeEntry(folder, name, false);
      }
    } catch {
      // A directory that cannot be listed may still be writable.
    }
  }
}

async function temporariesIn(folder: OpenFolder): Promise<Buffer[]> {
  const found: Buffer[] = [];
  let entries = 0;
  for await (const { name } of await openFolder(folder.link, { encoding: "latin1" })) {
    if (TEMPORARY.test(name)) found.push(Buffer.from(name));
    if (++entries === ENTRIES_LIMIT) break;
  }
  return found;
}

async function isLeftover(folder: OpenFolder, name: Uint8Array): Promise<boolean> {
  // Follows no link. What cannot be opened is not a leftover.
  const flags = constants.O_RDONLY | constants.O_NONBLOCK;
  await using file = await folder.openEntry("create", name, flags).catch(() => undefined);
  if (file === undefined) return false;
  const { type, uid, links, modifiedNs } = await file.attributes("create");
  const ageNs = BigInt(Date.now()) * 1_000_000n - modifiedNs;
  return type === "regular" && uid === process.geteuid?.() && links === 1n && ageNs > AGE_NS;
}
