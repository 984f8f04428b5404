import { readdirSync, readFileSync } from "node:fs";

/** Content of a file in /proc; empty if it cannot be read, for example because the process has ended. */
export function readProc(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** Names in a directory of /proc; empty if it cannot be read. */
export function namesIn(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
