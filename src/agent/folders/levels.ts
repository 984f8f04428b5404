import type { FolderIdentity, OpenFolder } from "../domain/index.ts";

/** Folders that a walk holds open at once: the first one, and the deepest. */
const OPEN_LEVELS = 16;

/** What a walk remembers of a folder that it is in. */
export interface Place {
  /** Drops state that can be read again, because the folder is closed while the walk is far below. */
  rest(): void;
}

interface Level<State extends Place> {
  readonly place: State;
  folder: OpenFolder | undefined;
  identity: FolderIdentity;
}

/** The folders from the top of a walk down to where it is. However deep that is, few are open. */
export class Levels<State extends Place> implements AsyncDisposable {
  readonly #levels: Level<State>[] = [];

  get depth(): number {
    return this.#levels.length;
  }

  /** The walk's current folder. */
  get here(): { readonly folder: OpenFolder; readonly place: State } | undefined {
    const level = this.#levels.at(-1);
    return level?.folder && { folder: level.folder, place: level.place };
  }

  /** Goes into a folder of the one where the walk is. */
  enter(folder: OpenFolder, place: State): void {
    this.#levels.push({ folder, place, identity: "" });
    const far = this.#levels[this.#levels.length - OPEN_LEVELS];
    if (far?.folder === undefined || far === this.#levels[0]) return;
    far.identity = far.folder.identity;
    void far.folder[Symbol.asyncDispose]();
    far.folder = undefined;
    far.place.rest();
  }

  /**
   * Goes back to the parent folder. Throws FileSystemError if that cannot be reached because somebody moved this one;
   * the walk then goes on with `abandon`.
   */
  async leave(): Promise<void> {
    const left = this.#levels.pop();
    const above = this.#levels.at(-1);
    try {
      if (above !== undefined && left?.folder !== undefined) above.folder ??= await left.folder.above(above.identity);
    } finally {
      void left?.folder?.[Symbol.asyncDispose]();
    }
  }

  /** Goes back to the nearest folder above that is open. Calls `left` for each that it leaves. */
  abandon(left: (place: State) => void): void {
    for (
      let level = this.#levels.at(-1);
      level !== undefined && level.folder === undefined;
      level = this.#levels.at(-1)
    ) {
      left(level.place);
      this.#levels.pop();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#levels.map(async ({ folder }) => folder?.[Symbol.asyncDispose]()));
  }
}
