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

/** A field of mountinfo (proc(5)), which has blanks and backslashes in octal. */
export function unescaped(field: string): string {
  return field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
