import type { FilePath } from "../attributes.ts";
import type { FolderIdentity } from "../entries/listing.ts";
import type { ListedFolder } from "../entries/listed-folder.ts";

/** Folders that a walk holds open at once: the first one, and the deepest. */
const OPEN_LEVELS = 16;
const SLASH = Buffer.from("/");

/** What a walk remembers of a folder that it is in. */
export interface Place {
  /** Drops state that can be read again, because the folder is closed while the walk is far below. */
  rest(): void;
}

interface Level<State extends Place> {
  readonly place: State;
  /** Length of the path above it. */
  readonly aboveBytes: number;
  folder: ListedFolder | undefined;
  identity: FolderIdentity;
}

/** The folders from the top of a walk down to where it is. However deep that is, few are open. */
export class Levels<State extends Place> implements AsyncDisposable {
  readonly #levels: Level<State>[] = [];
  /** From the first folder to where the walk is, with a slash at its end; empty for the first one. */
  #path: Buffer = Buffer.alloc(0);

  /** The path from the first folder to where the walk is; empty for the first one. */
  get path(): Buffer {
    return this.#path.subarray(0, Math.max(0, this.#path.length - 1));
  }

  pathOf(name: FilePath): Buffer {
    return Buffer.concat([this.#path, name]);
  }

  get depth(): number {
    return this.#levels.length;
  }

  get here(): { readonly folder: ListedFolder; readonly place: State } | undefined {
    const level = this.#levels.at(-1);
    return level?.folder && { folder: level.folder, place: level.place };
  }

  /** Goes into the first folder, or into a folder of the current one. */
  enter(folder: ListedFolder, name: FilePath, place: State): void {
    const aboveBytes = this.#path.length;
    if (this.depth > 0) this.#path = Buffer.concat([this.#path, name, SLASH]);
    this.#levels.push({ folder, place, aboveBytes, identity: "" });
    const far = this.#levels[this.#levels.length - OPEN_LEVELS];
    if (far?.folder === undefined || far === this.#levels[0]) return;
    far.identity = far.folder.identity;
    void far.folder[Symbol.asyncDispose]();
    far.folder = undefined;
    far.place.rest();
  }

  /** Goes back to the parent folder. Throws FileSystemError if somebody moved this one; then call `abandon`. */
  async leave(): Promise<void> {
    const left = this.#pop();
    const above = this.#levels.at(-1);
    try {
      if (above !== undefined && left?.folder !== undefined) above.folder ??= await left.folder.above(above.identity);
    } finally {
      void left?.folder?.[Symbol.asyncDispose]();
    }
  }

  /** Goes back to the nearest open folder above. Calls `leaving` for each folder on the way. */
  abandon(leaving?: (place: State) => void): void {
    for (const { folder, place } of this.#levels.toReversed()) {
      if (folder !== undefined) return;
      leaving?.(place);
      this.#pop();
    }
  }

  #pop(): Level<State> | undefined {
    const left = this.#levels.pop();
    this.#path = this.#path.subarray(0, left?.aboveBytes);
    return left;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#levels.map(async ({ folder }) => folder?.[Symbol.asyncDispose]()));
  }
}
