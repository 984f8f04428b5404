import type { FilePath } from "../attributes.ts";
import type { DirectoryIdentity } from "../entries/listing.ts";
import type { ListedDirectory } from "../entries/listed-directory.ts";

/** How many of the deepest directories of a walk stay open. The top directory stays open in addition. */
const OPEN_LEVELS = 16;
const SLASH = Buffer.from("/");

/** What a walk remembers about each directory that it has entered and not left yet. */
export interface WalkState {
  /** Called when the walk closes the directory, to reopen it later. Drops state that can then be read again. */
  suspend(): void;
}

interface Level<State extends WalkState> {
  readonly state: State;
  /** Number of bytes of the parent directory's path. */
  readonly aboveBytes: number;
  directory: ListedDirectory | undefined;
  identity: DirectoryIdentity;
}

/**
 * The stack of directories from the top of a walk to its current position. Only the top and the deepest OPEN_LEVELS
 * directories stay open.
 */
export class Levels<State extends WalkState> implements AsyncDisposable {
  readonly #levels: Level<State>[] = [];
  /** Path of the current directory relative to the top, with a trailing slash; empty for the top. */
  #path: Buffer = Buffer.alloc(0);

  /** Path of the current directory relative to the top; empty for the top. */
  get path(): Buffer {
    return this.#path.subarray(0, Math.max(0, this.#path.length - 1));
  }

  pathOf(name: FilePath): Buffer {
    return Buffer.concat([this.#path, name]);
  }

  get depth(): number {
    return this.#levels.length;
  }

  get current(): { readonly directory: ListedDirectory; readonly place: State } | undefined {
    const level = this.#levels.at(-1);
    return level?.directory && { directory: level.directory, place: level.state };
  }

  /** Descends into the top directory, or into a subdirectory of the current one. */
  enter(directory: ListedDirectory, name: FilePath, place: State): void {
    const aboveBytes = this.#path.length;
    if (this.depth > 0) this.#path = Buffer.concat([this.#path, name, SLASH]);
    this.#levels.push({ directory, state: place, aboveBytes, identity: "" });
    const far = this.#levels[this.#levels.length - OPEN_LEVELS];
    if (far?.directory === undefined || far === this.#levels[0]) return;
    far.identity = far.directory.identity;
    void far.directory[Symbol.asyncDispose]();
    far.directory = undefined;
    far.state.suspend();
  }

  /**
   * Returns to the parent directory. Throws FileSystemError if the current directory was moved elsewhere; the caller
   * must then call `unwindToOpen`.
   */
  async leave(): Promise<void> {
    const left = this.#pop();
    const above = this.#levels.at(-1);
    try {
      if (above !== undefined && left?.directory !== undefined)
        above.directory ??= await left.directory.above(above.identity);
    } finally {
      void left?.directory?.[Symbol.asyncDispose]();
    }
  }

  /**
   * Moves up to the nearest directory of the stack that is still open. Calls `onLeave` for each directory that it
   * leaves.
   */
  unwindToOpen(onLeave?: (place: State) => void): void {
    for (const { directory, state: place } of this.#levels.toReversed()) {
      if (directory !== undefined) return;
      onLeave?.(place);
      this.#pop();
    }
  }

  #pop(): Level<State> | undefined {
    const left = this.#levels.pop();
    this.#path = this.#path.subarray(0, left?.aboveBytes);
    return left;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#levels.map(async ({ directory }) => directory?.[Symbol.asyncDispose]()));
  }
}
