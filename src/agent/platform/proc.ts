import { readdirSync, readFileSync } from "node:fs";

/** Content of a file of /proc; empty where it cannot be read, as of a process that has ended. */
export function readProc(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** Names in a folder of /proc; none where it cannot be read. */
export function namesIn(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
