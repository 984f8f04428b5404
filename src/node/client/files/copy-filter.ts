import { EventLoopTurns, type OfferedEntry } from "../../tar/index.ts";
import { dateOf } from "../plain.ts";
import type { CopyEntry, UploadOptions } from "./directory-copy.ts";
import { type ArchiveEntry, timeOfNanoseconds } from "./tree-entry.ts";

const SLASH = Buffer.from("/");

/** Applies the caller's filter, and remembers the error that the filter has thrown. */
export class CopyFilter {
  /** The error that the caller's function has thrown. */
  failure: { readonly error: unknown } | undefined;
  readonly #filter: NonNullable<UploadOptions["filter"]>;

  constructor(filter: NonNullable<UploadOptions["filter"]>) {
    this.#filter = filter;
  }

  /** Resolves with whether to copy each of these entries of a directory. Rejects with the error of the caller's filter. */
  async choose(entries: readonly OfferedEntry[]): Promise<readonly boolean[]> {
    const chosen: boolean[] = [];
    const turns = new EventLoopTurns();
    for (const entry of entries) {
      if (turns.isDue) await turns.next();
      chosen.push(await this.#accepts(entryOf(entry)));
    }
    return chosen;
  }

  /**
   * Yields the entries to copy. Excludes everything in an excluded directory; so in `entries`, the content of a
   * directory must come directly after the directory.
   */
  async *chosen(entries: AsyncIterable<ArchiveEntry>): AsyncGenerator<ArchiveEntry> {
    const turns = new EventLoopTurns();
    let excluded: Buffer | undefined;
    for await (const entry of entries) {
      if (turns.isDue) await turns.next();
      if (excluded?.equals(entry.name.subarray(0, excluded.length)) === true) continue;
      if (await this.#accepts(entryOf(entry))) yield entry;
      else if (entry.type === "directory") excluded = Buffer.concat([entry.name, SLASH]);
    }
  }

  async #accepts(entry: CopyEntry): Promise<boolean> {
    try {
      const answer: unknown = await this.#filter(entry.name, entry);
      return Boolean(answer);
    } catch (error) {
      this.failure = { error };
      throw error;
    }
  }
}

function entryOf({ name, type, size, mode, uid, gid, mtimeNs = 0n }: OfferedEntry | ArchiveEntry): CopyEntry {
  const rawName = Buffer.from(name);
  const { seconds, nanos } = timeOfNanoseconds(mtimeNs);
  const mtime = dateOf({ seconds: BigInt(seconds), nanos });
  return { name: rawName.toString(), rawName, type, size, mode, uid, gid, mtime, mtimeNanos: nanos };
}
