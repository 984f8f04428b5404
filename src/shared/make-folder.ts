import { mkdirSync, type Stats, statSync } from "node:fs";
import { dirname } from "node:path";
import { errnoOf } from "./errors.ts";

/**
 * As `mkdir -p`; returns the attributes of the path, which need not be a folder. Node's own reports ENOENT for any
 * failure, for example on a read-only file system. It never ends on a file system that makes no folders, such as
 * /proc.
 */
export function makeFolder(path: string, mode = 0o777): Stats {
  try {
    mkdirSync(path, mode);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "ENOENT") {
      makeFolder(dirname(path), mode);
      mkdirSync(path, mode);
    } else if (errno !== "EEXIST") throw error;
  }
  return statSync(path);
}
