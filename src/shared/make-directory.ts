import { mkdirSync, type Stats, statSync } from "node:fs";
import { dirname } from "node:path";
import { errnoOf } from "./errors.ts";

/**
 * Does the same as `mkdir -p`, and returns the attributes of the path, which may be something other than a directory.
 * Node's recursive mkdir is not used: it reports ENOENT for any failure, for example on a read-only file system, and it
 * never returns on a file system that cannot contain new directories, such as /proc.
 */
export function makeDirectory(path: string, mode = 0o777): Stats {
  try {
    mkdirSync(path, mode);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "ENOENT") {
      makeDirectory(dirname(path), mode);
      mkdirSync(path, mode);
    } else if (errno !== "EEXIST") throw error;
  }
  return statSync(path);
}
