import type { Mount } from "../../domain/index.ts";
import type { FilePath } from "../attributes.ts";
import { SLASH } from "./names.ts";

/** A mount, with its path relative to a directory. */
export interface MountBelow {
  readonly path: FilePath;
  readonly mount: Mount;
}

/**
 * The mounts that were below a directory when a call began. An operation on one of these mounts must pass it as
 * `mount`. If the operation hangs, this mount then counts as hung, and not the file system of the directory.
 */
export class MountsBelow {
  readonly #mounts: readonly MountBelow[];

  /** @param mounts in the kernel's order, in which a mount comes after the mounts that it covers */
  constructor(mounts: readonly MountBelow[]) {
    this.#mounts = mounts.toReversed();
  }

  /**
   * The innermost mount that contains a path. Only names are compared; links are not followed. Undefined if no mount
   * contains the path.
   */
  of(path: FilePath): MountBelow | undefined {
    let found: MountBelow | undefined;
    for (const below of this.#mounts)
      if (below.path.length > (found?.path.length ?? 0) && isWithin(path, below.path)) found = below;
    return found;
  }

  /**
   * Finds out how many paths, beginning with the path at index `from`, are on the same mount. Returns the mount as
   * `below`. `end` is the index of the first path on another mount, or `to` if there is none before `to`.
   */
  first(from: number, to: number, pathAt: (index: number) => FilePath): { below: MountBelow | undefined; end: number } {
    if (this.#mounts.length === 0 || from >= to) return { below: undefined, end: to };
    const below = this.of(pathAt(from));
    let end = from + 1;
    while (end < to && this.of(pathAt(end)) === below) end += 1;
    return { below, end };
  }
}

function isWithin(path: FilePath, directory: FilePath): boolean {
  if (path.length < directory.length || (path.length > directory.length && path[directory.length] !== SLASH))
    return false;
  return Buffer.compare(path.subarray(0, directory.length), directory) === 0;
}
