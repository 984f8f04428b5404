import type { FilePath } from "../domain/index.ts";

const SLASH = 0x2f;
const DOT = 0x2e;

/** The folder part of a path as it is written, without resolving anything. */
export function folderOf(path: FilePath): FilePath {
  const slash = path.lastIndexOf(SLASH);
  if (slash < 0) return Uint8Array.of(DOT);
  return path.subarray(0, slash === 0 ? 1 : slash);
}

/** A symbolic link's target, seen from the folder that the link is in. */
export function resolveFrom(folder: FilePath, target: FilePath): FilePath {
  return target[0] === SLASH ? target : Buffer.concat([folder, Uint8Array.of(SLASH), target]);
}

/** Whether the path's last part is a name, and not empty, "." or "..". */
export function endsInName(path: FilePath): boolean {
  const name = path.subarray(path.lastIndexOf(SLASH) + 1);
  return name.some((byte) => byte !== DOT) || name.length > 2;
}
