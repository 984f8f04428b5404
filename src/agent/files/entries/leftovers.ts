import { constants, opendir } from "node:fs";
import { promisify } from "node:util";
import type { OpenDirectory } from "../open/directory.ts";
import { removeEntry } from "./make.ts";

/** Name of a temporary file. Used only on file systems without O_TMPFILE. */
const TEMPORARY = /^\.svc-guest-[0-9a-f]{24}\.tmp$/;
/**
 * Minimum age, in nanoseconds, of a file that is removed. A younger file may belong to a running agent, possibly in
 * another sandbox. An hour is enough, because no write pauses for so long.
 */
const AGE_NS = 3_600_000_000_000n;
/** At most this many entries are checked: a write must not wait for a directory with millions of entries. */
const ENTRIES_LIMIT = 10_000;
/** Number of checked directories to remember. When it is reached, all are forgotten and will be checked again. */
const DIRECTORIES_LIMIT = 1_024;
const openDirectory = promisify(opendir);

/** A unique temporary name that matches TEMPORARY. */
export function temporaryName(): Buffer {
  const { randomBytes } = process.getBuiltinModule("node:crypto");
  return Buffer.from(`.svc-guest-${randomBytes(12).toString("hex")}.tmp`);
}

/** Removes temporary files of agents that were killed while they wrote. */
export class Leftovers {
  /**
   * Inodes of checked directories. A directory with the same inode number on another file system is not checked, which
   * does no harm.
   */
  readonly #seen = new Set<bigint>();

  /**
   * Removes leftovers from a directory, once per agent. A leftover is a regular file of the agent's own user with a
   * temporary name, one link, and no change for an hour. Never rejects.
   */
  async removeFrom(directory: OpenDirectory): Promise<void> {
    try {
      const { inode } = await directory.attributes("create");
      if (this.#seen.has(inode)) return;
      if (this.#seen.size >= DIRECTORIES_LIMIT) this.#seen.clear();
      this.#seen.add(inode);
      const how = { step: "create", on: [directory.descriptor] } as const;
      for (const name of await directory.work.step(how, () => temporariesIn(directory))) {
        if (await isLeftover(directory, name)) await removeEntry(directory, name, false);
      }
    } catch {
      // Leftovers in a directory that cannot be listed are not removed. The caller may be able to write to this
      // directory nevertheless, so the error is ignored.
    }
  }
}

async function temporariesIn(directory: OpenDirectory): Promise<Buffer[]> {
  const found: Buffer[] = [];
  let entries = 0;
  for await (const { name } of await openDirectory(directory.link, { encoding: "latin1" })) {
    if (TEMPORARY.test(name)) found.push(Buffer.from(name));
    if (++entries === ENTRIES_LIMIT) break;
  }
  return found;
}

async function isLeftover(directory: OpenDirectory, name: Uint8Array): Promise<boolean> {
  // Follows no link. A file that cannot be opened is not a leftover.
  const flags = constants.O_RDONLY | constants.O_NONBLOCK;
  await using file = await directory.openEntry("create", name, flags).catch(() => undefined);
  if (file === undefined) return false;
  const { type, uid, links, modifiedNs } = await file.attributes("create");
  const ageNs = BigInt(Date.now()) * 1_000_000n - modifiedNs;
  return type === "regular" && uid === process.geteuid?.() && links === 1n && ageNs > AGE_NS;
}
