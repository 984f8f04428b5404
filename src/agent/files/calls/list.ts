import { type Clock, FileSystemError } from "../../domain/index.ts";
import type { DirectoryEntry, DirectoryPosition } from "../entries/listing.ts";
import type { ListedDirectory } from "../entries/listed-directory.ts";
import { Levels, type WalkState } from "./levels.ts";
import type { ListRequest } from "./tree-requests.ts";

/**
 * Limits of a batch: entries, bytes, and time since the previous batch. At the first limit that is reached, the batch
 * is sent.
 */
const BATCH_ENTRIES = 256;
const BATCH_BYTES = 64 * 1024;
const BATCH_MS = 100;
/** Longest path of a directory that the walk descends into. This limits the memory for a hostile tree. */
const PATH_LIMIT_BYTES = 64 * 1024;
/** Errnos that mean that the directory was removed or replaced after its parent was listed. */
const GONE: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);

/** An entry. Its name is its path relative to the listed directory. */
export type ListedEntry = Omit<DirectoryEntry, "position">;

/** Receives a batch. Resolves when it can take the next one. */
export type ListOutput = (entries: readonly ListedEntry[], truncated: boolean) => Promise<void>;

export interface ListParts {
  readonly top: ListedDirectory;
  readonly request: ListRequest;
  readonly output: ListOutput;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly signal: AbortSignal;
}

/** How far one directory has been read, and how many of its entries were sent. */
class ListState implements WalkState {
  readonly inode: bigint;
  entries: readonly DirectoryEntry[] = [];
  /** Number of `entries` that were sent. */
  sent = 0;
  /**
   * Position where the next read begins. Undefined means the start of the directory or, if `isAtEnd` is true, that no
   * read follows.
   */
  next: DirectoryPosition | undefined;
  isAtEnd = false;

  constructor(inode: bigint) {
    this.inode = inode;
  }

  suspend(): void {
    const last = this.entries[this.sent - 1];
    if (last !== undefined) {
      this.next = last.position;
      this.isAtEnd = false;
    }
    this.entries = [];
    this.sent = 0;
  }
}

/**
 * Lists a directory recursively. A subdirectory comes right before its own entries. Throws FileSystemError, or the
 * signal's reason.
 */
export async function listTree(parts: ListParts): Promise<void> {
  await new ListWalk(parts).run();
}

class ListWalk {
  readonly #parts: ListParts;
  readonly #levels = new Levels<ListState>();
  readonly #depth: number;
  #sent = 0n;
  #batch: ListedEntry[] = [];
  #batchBytes = 0;
  #sentMs: number;

  constructor(parts: ListParts) {
    this.#parts = parts;
    this.#depth = Math.max(1, parts.request.depth);
    this.#sentMs = parts.clock.monotonicMs();
  }

  async run(): Promise<void> {
    const { top, request, signal } = this.#parts;
    await using levels = this.#levels;
    levels.enter(top, Buffer.alloc(0), new ListState(0n));
    for (let here = levels.current; here !== undefined; here = levels.current) {
      signal.throwIfAborted();
      const { directory, place } = here;
      const entry = place.entries[place.sent];
      if (entry === undefined) {
        if (place.isAtEnd) await this.#leave();
        else await this.#read(directory, place);
        continue;
      }
      if (request.maxEntries > 0n && this.#sent === request.maxEntries) {
        await this.#send(true);
        return;
      }
      place.sent += 1;
      await this.#visit(directory, entry);
    }
    if (this.#batch.length > 0) await this.#send(false);
  }

  /**
   * Reads the next entries of a directory. If this fails, the directory is reported as failed. Only a failure of the
   * first read of the top directory fails the call.
   */
  async #read(directory: ListedDirectory, place: ListState): Promise<void> {
    try {
      const { entries, next } = await directory.read(place.next);
      place.entries = entries;
      place.next = next;
      place.isAtEnd = next === undefined;
    } catch (error) {
      const isFirst = this.#levels.depth === 1 && place.next === undefined;
      if (!(error instanceof FileSystemError) || isFirst) throw error;
      place.entries = [];
      place.isAtEnd = true;
      this.#addFailure(place, error.errno);
    }
    place.sent = 0;
    const waitedMs = this.#parts.clock.monotonicMs() - this.#sentMs;
    if (this.#batch.length > 0 && waitedMs > BATCH_MS) await this.#send(false);
  }

  async #visit(directory: ListedDirectory, entry: DirectoryEntry): Promise<void> {
    const { request } = this.#parts;
    const name = this.#levels.depth === 1 ? entry.name : this.#levels.pathOf(entry.name);
    const isEntered =
      entry.type === "directory" &&
      entry.errno === undefined &&
      this.#levels.depth < this.#depth &&
      (request.crossMounts || !entry.isMountPoint);
    if (!isEntered) {
      await this.#add(name === entry.name ? entry : { ...entry, name });
      return;
    }
    try {
      if (name.length > PATH_LIMIT_BYTES) throw new FileSystemError("open", "ENAMETOOLONG");
      // Looks up the mount only for mount points: doing it for each directory took a tenth of the CPU time.
      const child = await directory.enter(entry.name, entry.isMountPoint);
      this.#levels.enter(child, entry.name, new ListState(entry.inode));
      await this.#add({ ...entry, name });
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      await this.#add({ ...entry, name, errno: GONE.has(error.errno) ? undefined : error.errno });
    }
  }

  async #leave(): Promise<void> {
    try {
      await this.#levels.leave();
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      const { errno } = error;
      this.#levels.unwindToOpen((lost) => this.#addFailure(lost, errno));
    }
  }

  /** Adds an entry that says why the rest of a directory could not be read. */
  #addFailure({ inode }: ListState, errno: string): void {
    const rest = { attributes: undefined, linkTarget: undefined, isMountPoint: false };
    this.#batch.push({ ...rest, name: this.#levels.path, type: "directory", inode, errno });
  }

  async #add(entry: ListedEntry): Promise<void> {
    this.#sent += 1n;
    this.#batch.push(entry);
    this.#batchBytes += entry.name.length + (entry.linkTarget?.length ?? 0);
    if (this.#batch.length >= BATCH_ENTRIES || this.#batchBytes >= BATCH_BYTES) await this.#send(false);
  }

  async #send(truncated: boolean): Promise<void> {
    const batch = this.#batch;
    this.#batch = [];
    this.#batchBytes = 0;
    await this.#parts.output(batch, truncated);
    this.#sentMs = this.#parts.clock.monotonicMs();
  }
}
