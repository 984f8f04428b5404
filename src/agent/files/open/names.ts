import type { FilePath } from "../attributes.ts";

/** The byte between names. */
export const SLASH = 0x2f;
const DOT = 0x2e;

/** The folder part of a path as it is written, without resolving anything. */
export function folderOf(path: FilePath): FilePath {
  const slash = path.lastIndexOf(SLASH);
  if (slash < 0) return Uint8Array.of(DOT);
  return path.subarray(0, slash === 0 ? 1 : slash);
}

/** Whether it is no name of an entry: empty, "." or "..". */
export function isNoName(name: FilePath): boolean {
  return name.length <= 2 && name.every((byte) => byte === DOT);
}

/** A path without "." and slashes at its end: "a/." and "a//" are "a". */
export function withoutDots(path: FilePath): FilePath {
  let end = path.length;
  for (;;) {
    const isDot = path[end - 1] === DOT && path[end - 2] === SLASH;
    if (end <= 1 || (path[end - 1] !== SLASH && !isDot)) return path.subarray(0, end);
    end -= 1;
  }
}

/** A path, divided before its last name. */
export interface DividedPath {
  readonly folder: FilePath;
  readonly name: FilePath;
}

/** Divides a path as it is written; slashes at its end do not count. */
export function splitPath(path: FilePath): DividedPath {
  let end = path.length;
  while (end > 1 && path[end - 1] === SLASH) end -= 1;
  const trimmed = path.subarray(0, end);
  return { folder: folderOf(trimmed), name: trimmed.subarray(trimmed.lastIndexOf(SLASH) + 1) };
}
