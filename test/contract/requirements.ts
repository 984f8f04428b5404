import { readFileSync } from "node:fs";
import { join } from "node:path";

/** A sentence of a contract or a promise, and the tests that hold it: the file, and a part of the title. */
export interface Requirement {
  readonly section: string;
  readonly says: string;
  readonly tests: (readonly [file: string, title: string])[];
}

/** All of requirements.txt: sections with "##", sentences, and their tests, which are indented. */
export function requirements(): readonly Requirement[] {
  const found: Requirement[] = [];
  let section = "";
  for (const line of readFileSync(join(import.meta.dirname, "requirements.txt"), "utf8").split("\n")) {
    const [, file, title] = /^ {2}(\S+): (.+)$/.exec(line) ?? [];
    if (file !== undefined && title !== undefined) found.at(-1)?.tests.push([file, title]);
    else if (line.startsWith("## ")) section = line.slice("## ".length);
    else if (line !== "" && !line.startsWith("# ")) found.push({ section, says: line, tests: [] });
  }
  return found;
}
