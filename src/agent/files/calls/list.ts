import { type Clock, FileSystemError } from "../../domain/index.ts";
import type { FolderEntry, FolderPosition } from "../entries/listing.ts";
import type { ListedFolder } from "../entries/listed-folder.ts";
import { Levels, type Place } from "./levels.ts";
import type { ListRequest } from "./tree-requests.ts";

/** A batch is sent when it has this many entries or bytes of names, or when its first entry has waited this long. */
const BATCH_ENTRIES = 256;
const BATCH_BYTES = 64 * 1024;
const BATCH_MS = 100;
/** Longest path that is listed: the walk goes no deeper into a hostile tree. */
const PATH_LIMIT_BYTES = 64 * 1024;
/** Why a former folder cannot be listed. */
const GONE: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "ELOOP"]);

/** An entry, with its path from the listed folder on. */
export type ListedEntry = Omit<FolderEntry, "position">;

/** Takes a batch. Resolves when the next may come. */
export type ListOutput = (entries: readonly ListedEntry[], truncated: boolean) => Promise<void>;

/** What a walk needs. */
export interface ListParts {
  readonly top: ListedFolder;
  readonly request: ListRequest;
  readonly output: ListOutput;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly signal: AbortSignal;
}

/** Where the walk is in a folder. */
class ListPlace implements Place {
  readonly inode: bigint;
  entries: readonly FolderEntry[] = [];
  /** Entries of it that were sent. */
  sent = 0;
  /** Where to read on; undefined: from the beginning, or at the end. */
  next: FolderPosition | undefined;
  isAtEnd = false;

  constructor(inode: bigint) {
    this.inode = inode;
  }

  rest(): void {
    const last = this.entries[this.sent - 1];
    if (last !== undefined) {
      this.next = last.position;
      this.isAtEnd = false;
    }
    this.entries = [];
    this.sent = 0;
  }
}

/** Lists a folder; a subfolder comes right before its own content. Throws FileSystemError, or the signal's reason. */
export async function listTree(parts: ListParts): Promise<void> {
  await new ListWalk(parts).run();
}

class ListWalk {
  readonly #parts: ListParts;
  readonly #levels = new Levels<ListPlace>();
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
    levels.enter(top, Buffer.alloc(0), new ListPlace(0n));
    for (let here = levels.here; here !== undefined; here = levels.here) {
      signal.throwIfAborted();
      const { folder, place } = here;
      const entry = place.entries[place.sent];
      if (entry === undefined) {
        if (place.isAtEnd) await this.#leave();
        else await this.#read(folder, place);
        continue;
      }
      if (request.maxEntries > 0n && this.#sent === request.maxEntries) {
        await this.#send(true);
        return;
      }
      place.sent += 1;
      await this.#visit(folder, entry);
    }
    if (this.#batch.length > 0) await this.#send(false);
  }

  /** Reads the next entries of a folder. An error fails the call only if nothing of the listed folder was sent yet. */
  async #read(folder: ListedFolder, place: ListPlace): Promise<void> {
    try {
      const { entries, next } = await folder.read(place.next);
      place.entries = entries;
      place.next = next;
      place.isAtEnd = next === undefined;
    } catch (error) {
      const isFirst = this.#levels.depth === 1 && place.next === undefined;
      if (!(error instanceof FileSystemError) || isFirst) throw error;
      place.entries = [];
      place.isAtEnd = true;
      this.#complain(place, error.errno);
    }
    place.sent = 0;
    const waitedMs = this.#parts.clock.monotonicMs() - this.#sentMs;
    if (this.#batch.length > 0 && waitedMs > BATCH_MS) await this.#send(false);
  }

  async #visit(folder: ListedFolder, entry: FolderEntry): Promise<void> {
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
      // Looks up mounts only where there is one: reading the list of them for each folder took a tenth of the CPU time.
      const child = await folder.enter(entry.name, entry.isMountPoint);
      this.#levels.enter(child, entry.name, new ListPlace(entry.inode));
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
      this.#levels.abandon((lost) => this.#complain(lost, errno));
    }
  }

  /** Reports why the rest of a partly listed folder cannot be read. */
  #complain({ inode }: ListPlace, errno: string): void {
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
