import type { FilePath } from "../attributes.ts";
import { FileSystemError } from "../../domain/index.ts";
import type { DirectoryPosition, Removable } from "../entries/listing.ts";
import { Failures, type FailedEntry } from "./item.ts";
import type { ListedDirectory } from "../entries/listed-directory.ts";
import { Levels, type WalkState } from "./levels.ts";

/** Number of attempts to empty a directory. An attempt fails if other processes add entries meanwhile. */
const PASSES = 3;
/** Errnos of rmdir(2) on a directory that is not empty. */
const FULL: ReadonlySet<string> = new Set(["ENOTEMPTY", "EEXIST"]);
/** Errnos which show that a directory was replaced by an entry of another type. */
const NOT_A_DIRECTORY: ReadonlySet<string> = new Set(["ENOTDIR", "ELOOP"]);

export interface Removal {
  readonly removed: bigint;
  readonly left: bigint;
  /** The first entries that could not be removed. */
  readonly leftEntries: readonly FailedEntry[];
}

export interface RemoveParts {
  readonly above: ListedDirectory;
  readonly name: FilePath;
  readonly onProgress: () => void;
  readonly signal: AbortSignal;
}

class RemoveState implements WalkState {
  readonly name: FilePath;
  readonly pass: number;
  /** Subdirectories on the current page that are not empty. */
  directories: Removable[] = [];
  /** Position in the directory where the current page of entries begins. */
  last: DirectoryPosition | undefined;
  /** Position where the page after the current one begins. */
  next: DirectoryPosition | undefined;
  isAtEnd = false;
  /** Whether an entry below this directory cannot be removed. In this case the directory stays as well. */
  isKept = false;

  constructor(name: FilePath, pass: number) {
    this.name = name;
    this.pass = pass;
  }

  suspend(): void {
    if (this.directories.length === 0) return;
    this.directories = [];
    this.next = this.last;
    this.isAtEnd = false;
  }
}

/**
 * Removes a directory and everything in it. Throws FileSystemError if the directory cannot be opened, or the signal's
 * reason.
 */
export async function removeTree(parts: RemoveParts): Promise<Removal> {
  return new RemoveWalk(parts).run();
}

class RemoveWalk {
  readonly #parts: RemoveParts;
  readonly #levels = new Levels<RemoveState>();
  #removed = 0n;
  readonly #left = new Failures(false);

  constructor(parts: RemoveParts) {
    this.#parts = parts;
  }

  async run(): Promise<Removal> {
    const { above, name, signal, onProgress } = this.#parts;
    await using levels = this.#levels;
    levels.enter(await above.enter(name, false), name, new RemoveState(name, 1));
    for (let here = levels.current; here !== undefined; here = levels.current) {
      signal.throwIfAborted();
      const { directory, place } = here;
      const child = place.directories.pop();
      if (child !== undefined) await this.#enter(directory, place, child, 1);
      else if (place.isAtEnd) await this.#leave(place);
      else await this.#page(directory, place);
      onProgress();
    }
    return { removed: this.#removed, left: this.#left.count, leftEntries: this.#left.first };
  }

  /** Removes the entries of the next page, except for directories that are not empty. */
  async #page(directory: ListedDirectory, place: RemoveState): Promise<void> {
    let entries: readonly Removable[];
    try {
      const page = await directory.readNames(place.next);
      entries = page.entries;
      place.last = place.next;
      place.next = page.next;
      place.isAtEnd = page.next === undefined;
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      place.isAtEnd = true;
      this.#keep(place, this.#levels.path, error.errno);
      return;
    }
    await this.#removeEach(directory, place, entries);
  }

  async #removeEach(directory: ListedDirectory, place: RemoveState, entries: readonly Removable[]): Promise<void> {
    for (let tried = 0; tried < entries.length;) {
      this.#parts.signal.throwIfAborted();
      const outcomes = await directory.removeEach(entries.slice(tried));
      for (const errno of outcomes) {
        const entry = entries[tried++];
        if (entry === undefined) return;
        if (errno === undefined) this.#removed += 1n;
        else if (FULL.has(errno) || errno === "EISDIR") place.directories.push({ name: entry.name, type: "directory" });
        else if (errno !== "ENOENT") this.#keep(place, this.#levels.pathOf(entry.name), errno);
      }
    }
  }

  async #enter(directory: ListedDirectory, place: RemoveState, { name }: Removable, pass: number): Promise<void> {
    try {
      const child = await directory.enter(name, false);
      const copy = Buffer.from(name);
      this.#levels.enter(child, copy, new RemoveState(copy, pass));
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      const { errno } = error;
      if (errno === "ENOENT") return;
      if (NOT_A_DIRECTORY.has(errno)) await this.#removeEach(directory, place, [{ name, type: "unknown" }]);
      else this.#keep(place, this.#levels.pathOf(name), errno === "EXDEV" ? "EBUSY" : errno);
    }
  }

  /** Returns to the parent directory and removes the directory just left. */
  async #leave(place: RemoveState): Promise<void> {
    const { path } = this.#levels;
    try {
      await this.#levels.leave();
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      const { errno } = error;
      this.#keep(place, path, errno);
      this.#levels.unwindToOpen();
      const reached = this.#levels.current?.place;
      if (reached !== undefined) reached.isKept = true;
      return;
    }
    const here = this.#levels.current;
    const directory = here?.directory ?? this.#parts.above;
    if (place.isKept) {
      if (here !== undefined) here.place.isKept = true;
      return;
    }
    const [errno] = await directory.removeEach([{ name: place.name, type: "directory" }]);
    if (errno === undefined) this.#removed += 1n;
    else if (FULL.has(errno) && place.pass < PASSES) await this.#retry(here, place);
    else if (errno !== "ENOENT") this.#keep(here?.place, path, errno);
  }

  /**
   * Empties a directory that is still not empty. Another process may have added entries, or the listing may have
   * skipped entries because of the removals.
   */
  async #retry(here: Levels<RemoveState>["current"], { name, pass }: RemoveState): Promise<void> {
    if (here !== undefined) await this.#enter(here.directory, here.place, { name, type: "directory" }, pass + 1);
    else this.#levels.enter(await this.#parts.above.enter(name, false), name, new RemoveState(name, pass + 1));
  }

  #keep(place: RemoveState | undefined, name: Buffer, errno: string): void {
    if (place !== undefined) place.isKept = true;
    this.#left.add(name, errno);
  }
}
