import { globSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";

/** A source file and its imports of others, as paths from the project's directory. */
export interface Source {
  /** Path from the project's directory, such as "src/agent/exec/exec.ts". */
  readonly path: string;
  /** Imported files of the project, type imports included. */
  readonly files: readonly string[];
  /** Those of them that load with it. */
  readonly eager: readonly string[];
  /** Dynamic imports of something other than a plain string: they cannot be followed. */
  readonly untraceable: number;
  /** Lines with `using` directly in a loop, not in a function inside it. */
  readonly usingInLoops: readonly number[];
}

const COMMENTS = /\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm;
const STATIC = /^(?:import|export)\b(?:[^;"'`]*?\bfrom)?\s*["']([^"']+)["']/gm;
const TYPES = /^(?:import|export) type\b/;
const DYNAMIC = /\bimport\(\s*(["'])([^"']+)\1/g;
const ANY_DYNAMIC = /\bimport\(/g;

/** Reads the imports from a file's text: import and export statements, import() and import types. */
export function parseSource(path: string, text: string): Source {
  const code = text.replaceAll(COMMENTS, "");
  const dynamic = Array.from(code.matchAll(DYNAMIC), (match) => match[2] ?? "");
  const statements = Array.from(code.matchAll(STATIC));
  const imports = [...statements.map((match) => match[1] ?? ""), ...dynamic];
  const isFile = (name: string): boolean => name.startsWith(".");
  const fileOf = (name: string): string => posix.join(posix.dirname(path), name);
  return {
    path,
    files: imports.filter(isFile).map(fileOf),
    eager: statements
      .filter(([statement]) => !TYPES.test(statement))
      .map((match) => match[1] ?? "")
      .filter(isFile)
      .map(fileOf),
    untraceable: (code.match(ANY_DYNAMIC) ?? []).length - dynamic.length,
    usingInLoops: usingInLoops(text.split("\n")),
  };
}

const indentOf = (line: string): number => line.length - line.trimStart().length;

/** Judges by indentation, which the formatter keeps: the nearest line above that opens a loop or a function decides. */
function usingInLoops(lines: readonly string[]): number[] {
  return lines.flatMap((line, index) => {
    if (!/^\s*(?:await )?using /.test(line)) return [];
    let indent = indentOf(line);
    for (let above = index - 1; above >= 0 && indent > 0; above--) {
      const opener = lines[above] ?? "";
      if (opener.trim() === "" || indentOf(opener) >= indent) continue;
      indent = indentOf(opener);
      if (/^\s*(?:for|while|do)\b/.test(opener)) return [index + 1];
      if (/(?:=>|\)(?:: [^=]*)?) \{$/.test(opener) && !/^\s*(?:\} )?(?:if|else|switch|catch)\b/.test(opener)) return [];
    }
    return [];
  });
}

/** All modules of src/. */
export function readSources(root: string): Source[] {
  return globSync("src/**/*.ts", { cwd: root })
    .toSorted()
    .map((path) => parseSource(path, readFileSync(join(root, path), "utf8")));
}
