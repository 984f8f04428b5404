import type { FilePath } from "../attributes.ts";

/** The path separator, as a byte of a FilePath. */
export const SLASH = 0x2f;
const DOT = 0x2e;

/** The directory part of a path, as from dirname(1). Only the text of the path is used, not the file system. */
export function dirname(path: FilePath): FilePath {
  const slash = path.lastIndexOf(SLASH);
  if (slash < 0) return Uint8Array.of(DOT);
  return path.subarray(0, slash === 0 ? 1 : slash);
}

/** Whether a name is empty, "." or "..". */
export function isReservedName(name: FilePath): boolean {
  return name.length <= 2 && name.every((byte) => byte === DOT);
}

/** A path without trailing slashes and dots: "a/." and "a//" become "a". */
export function withoutDots(path: FilePath): FilePath {
  let end = path.length;
  for (;;) {
    const isDot = path[end - 1] === DOT && path[end - 2] === SLASH;
    if (end <= 1 || (path[end - 1] !== SLASH && !isDot)) return path.subarray(0, end);
    end -= 1;
  }
}

/** A path such as `a/b/c`, split into its directory `a/b` and its last name `c`. */
export interface DividedPath {
  readonly directory: FilePath;
  readonly name: FilePath;
}

/** Splits a path without resolving it. Trailing slashes are ignored. */
export function splitPath(path: FilePath): DividedPath {
  let end = path.length;
  while (end > 1 && path[end - 1] === SLASH) end -= 1;
  const trimmed = path.subarray(0, end);
  return { directory: dirname(trimmed), name: trimmed.subarray(trimmed.lastIndexOf(SLASH) + 1) };
}
