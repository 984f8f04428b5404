import type { FilePath } from "../attributes.ts";
import { FileSystemError } from "../../domain/index.ts";
import type { FolderPosition, Removable } from "../entries/listing.ts";
import { Failures, type LeftEntry } from "./item.ts";
import type { ListedFolder } from "../entries/listed-folder.ts";
import { Levels, type Place } from "./levels.ts";

/** How often a folder is read again, because others may fill it in the meantime. */
const PASSES = 3;
/** Why a folder cannot be removed: it still holds something. */
const FULL: ReadonlySet<string> = new Set(["ENOTEMPTY", "EEXIST"]);
/** Why an entry that was a folder cannot be entered: it is something else now. */
const NO_FOLDER: ReadonlySet<string> = new Set(["ENOTDIR", "ELOOP"]);

/** The result of a removal. */
export interface Removal {
  readonly removed: bigint;
  readonly left: bigint;
  /** The first of them. */
  readonly leftEntries: readonly LeftEntry[];
}

/** What the removal of a folder needs. */
export interface RemoveParts {
  /** The folder that holds it. */
  readonly above: ListedFolder;
  readonly name: FilePath;
  /** Called after every step. */
  readonly onProgress: () => void;
  readonly signal: AbortSignal;
}

class RemovePlace implements Place {
  readonly name: FilePath;
  readonly pass: number;
  /** Folders of the last page that are not empty. */
  folders: Removable[] = [];
  /** Where the last page begins, and the next. */
  last: FolderPosition | undefined;
  next: FolderPosition | undefined;
  isAtEnd = false;
  /** Something in it, or below, cannot be removed. */
  keeps = false;

  constructor(name: FilePath, pass: number) {
    this.name = name;
    this.pass = pass;
  }

  rest(): void {
    if (this.folders.length === 0) return;
    this.folders = [];
    this.next = this.last;
    this.isAtEnd = false;
  }
}

/** Removes a folder with all in it. Throws FileSystemError where it cannot even be entered, and the signal's reason. */
export async function removeTree(parts: RemoveParts): Promise<Removal> {
  return new RemoveWalk(parts).run();
}

class RemoveWalk {
  readonly #parts: RemoveParts;
  readonly #levels = new Levels<RemovePlace>();
  #removed = 0n;
  readonly #left = new Failures(false);

  constructor(parts: RemoveParts) {
    this.#parts = parts;
  }

  async run(): Promise<Removal> {
    const { above, name, signal, onProgress } = this.#parts;
    await using levels = this.#levels;
    levels.enter(await above.enter(name, false), name, new RemovePlace(name, 1));
    for (let here = levels.here; here !== undefined; here = levels.here) {
      signal.throwIfAborted();
      const { folder, place } = here;
      const child = place.folders.pop();
      if (child !== undefined) await this.#enter(folder, place, child, 1);
      else if (place.isAtEnd) await this.#leave(place);
      else await this.#page(folder, place);
      onProgress();
    }
    return { removed: this.#removed, left: this.#left.count, leftEntries: this.#left.first };
  }

  /** Removes the next entries of a folder, except for folders that are not empty. */
  async #page(folder: ListedFolder, place: RemovePlace): Promise<void> {
    let entries: readonly Removable[];
    try {
      const page = await folder.readNames(place.next);
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
    await this.#removeEach(folder, place, entries);
  }

  async #removeEach(folder: ListedFolder, place: RemovePlace, entries: readonly Removable[]): Promise<void> {
    for (let tried = 0; tried < entries.length;) {
      this.#parts.signal.throwIfAborted();
      const outcomes = await folder.removeEach(entries.slice(tried));
      for (const errno of outcomes) {
        const entry = entries[tried++];
        if (entry === undefined) return;
        if (errno === undefined) this.#removed += 1n;
        else if (FULL.has(errno) || errno === "EISDIR") place.folders.push({ name: entry.name, type: "directory" });
        else if (errno !== "ENOENT") this.#keep(place, this.#levels.pathOf(entry.name), errno);
      }
    }
  }

  async #enter(folder: ListedFolder, place: RemovePlace, { name }: Removable, pass: number): Promise<void> {
    try {
      const child = await folder.enter(name, false);
      const copy = Buffer.from(name);
      this.#levels.enter(child, copy, new RemovePlace(copy, pass));
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      const { errno } = error;
      if (errno === "ENOENT") return;
      if (NO_FOLDER.has(errno)) await this.#removeEach(folder, place, [{ name, type: "unknown" }]);
      else this.#keep(place, this.#levels.pathOf(name), errno === "EXDEV" ? "EBUSY" : errno);
    }
  }

  /** Goes back to the folder above, and removes the one that is left. */
  async #leave(place: RemovePlace): Promise<void> {
    const { path } = this.#levels;
    try {
      await this.#levels.leave();
    } catch (error) {
      if (!(error instanceof FileSystemError)) throw error;
      const { errno } = error;
      this.#keep(place, path, errno);
      this.#levels.abandon();
      const reached = this.#levels.here?.place;
      if (reached !== undefined) reached.keeps = true;
      return;
    }
    const here = this.#levels.here;
    const folder = here?.folder ?? this.#parts.above;
    if (place.keeps) {
      if (here !== undefined) here.place.keeps = true;
      return;
    }
    const [errno] = await folder.removeEach([{ name: place.name, type: "directory" }]);
    if (errno === undefined) this.#removed += 1n;
    else if (FULL.has(errno) && place.pass < PASSES) await this.#again(here, place);
    else if (errno !== "ENOENT") this.#keep(here?.place, path, errno);
  }

  /** Others filled it, or the file system skipped entries because some were removed. */
  async #again(here: Levels<RemovePlace>["here"], { name, pass }: RemovePlace): Promise<void> {
    if (here !== undefined) await this.#enter(here.folder, here.place, { name, type: "directory" }, pass + 1);
    else this.#levels.enter(await this.#parts.above.enter(name, false), name, new RemovePlace(name, pass + 1));
  }

  #keep(place: RemovePlace | undefined, name: Buffer, errno: string): void {
    if (place !== undefined) place.keeps = true;
    this.#left.add(name, errno);
  }
}
