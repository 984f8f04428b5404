import { EntryError } from "../entry-error.ts";
import { LinkedNames } from "../linked-names.ts";
import { type LocalEntry, localEntry, type LocalTarEntry, localTree } from "../local-tree.ts";
import { exclusion } from "../patterns.ts";
import type { TarEntry } from "../read.ts";
import { failureRecord, type NoEntry, type SentEntry, skippedRecord } from "./entry-sender.ts";
import { answersOf } from "./filter-link.ts";
import type { ReadOptions } from "./jobs.ts";

/** The entries of a local directory, the root first, as they are sent to another thread. */
export class LocalItems {
  readonly #root: string | Buffer;
  readonly #options: ReadOptions;
  /** For each file with several hard links, the name under which it was read first. */
  readonly #links = new LinkedNames();

  constructor(root: string | Buffer, options: ReadOptions) {
    this.#root = root;
    this.#options = options;
  }

  /**
   * Must be called if the content of this file could not be read. The next name of the file is then sent as a file
   * again, not as a hard link to this name.
   */
  forget(name: Buffer): void {
    this.#links.forget(name);
  }

  /** Yields all entries. Throws the error of the system call if the root cannot be read. */
  *all(): Generator<SentEntry, void> {
    const { exclude = [], filter, oneFileSystem, followLinks } = this.#options;
    const failures: NoEntry[] = [];
    const onUnreadable = (name: Buffer, error: EntryError): void => {
      failures.push(failureRecord(name, error));
    };
    const isExcluded = exclusion(exclude.map((pattern) => (typeof pattern === "string" ? pattern : bufferOf(pattern))));
    const choose = filter && ((entries: readonly LocalEntry[]) => answersOf(filter, entries));
    const walk = { onUnreadable, isExcluded, choose, oneFileSystem, followsLinks: followLinks };
    for (const local of localTree(this.#root, walk)) {
      yield* failures.splice(0);
      if (local === undefined || this.#options.leftOut?.has(local.name.toString("latin1")) === true) yield undefined;
      else
        try {
          yield this.#item(local);
        } catch (error) {
          if (!(error instanceof EntryError)) throw error;
          this.forget(local.name);
          yield failureRecord(local.name, error);
        }
    }
    yield* failures;
  }

  #item(local: LocalEntry): SentEntry {
    const { owners, hardLinks = false } = this.#options;
    const first = hardLinks ? this.#links.firstOf(local) : undefined;
    const entry = localEntry(local, owners);
    if (entry === undefined)
      return failureRecord(
        local.name,
        new EntryError("EOPNOTSUPP", `${local.path.toString()} is neither a file, a directory nor a link`),
      );
    if (first !== undefined) return linkOf(entry, first);
    return this.#isThere(entry) ? skippedRecord(entry.size) : entry;
  }

  #isThere({ type, name, size, mode, mtimeNs }: LocalTarEntry): boolean {
    const there = type === "file" ? this.#options.there?.get(name.toString("latin1")) : undefined;
    return there?.size === size && there.mode === mode && there.mtimeNs === mtimeNs;
  }
}

function linkOf({ name, mode, uid, gid, mtimeSeconds, mtimeNs }: LocalTarEntry, linkTarget: Buffer): TarEntry {
  const head = { type: "hard-link", name, linkTarget, mode, uid, gid, mtimeSeconds, mtimeNs, size: 0 } as const;
  return { ...head, content: NOTHING };
}

const NOTHING: AsyncIterable<Buffer> = {
  async *[Symbol.asyncIterator]() {
    // Yields nothing, because a hard link has no content.
  },
};

function bufferOf({ buffer, byteOffset, length }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}
