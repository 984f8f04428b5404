import type { Mount } from "../../domain/index.ts";
import type { FilePath } from "../attributes.ts";
import { SLASH } from "./names.ts";

/** What is mounted at a path below a folder. */
export interface MountBelow {
  readonly path: FilePath;
  readonly mount: Mount;
}

/**
 * The mounts below a folder when a call began. One that hangs must be named by what waits for it: or else the folder's
 * own file system counts as hung, and every call on that fails.
 */
export class MountsBelow {
  readonly #mounts: readonly MountBelow[];

  /** `mounts`: as the kernel lists them, one mounted over another behind it. */
  constructor(mounts: readonly MountBelow[]) {
    this.#mounts = mounts.toReversed();
  }

  /** The mount that a path leads into by its names, the innermost; undefined: none. */
  of(path: FilePath): MountBelow | undefined {
    let found: MountBelow | undefined;
    for (const below of this.#mounts)
      if (below.path.length > (found?.path.length ?? 0) && isWithin(path, below.path)) found = below;
    return found;
  }

  /** The first of some paths, from an index on, as far as they are in one mount: their mount, and where they end. */
  first(from: number, to: number, pathAt: (index: number) => FilePath): { below: MountBelow | undefined; end: number } {
    if (this.#mounts.length === 0 || from >= to) return { below: undefined, end: to };
    const below = this.of(pathAt(from));
    let end = from + 1;
    while (end < to && this.of(pathAt(end)) === below) end += 1;
    return { below, end };
  }
}

function isWithin(path: FilePath, folder: FilePath): boolean {
  if (path.length < folder.length || (path.length > folder.length && path[folder.length] !== SLASH)) return false;
  return Buffer.compare(path.subarray(0, folder.length), folder) === 0;
}
