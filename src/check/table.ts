import type { Check } from "./checks.ts";

const FOUND_WIDTH = 24;
const MEANING_WIDTH = 72;
const GAP = "  ";

/** Lines of at most `width` characters, broken at blanks; a longer word has a line of its own. */
function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}

/** Checks for people: a row each, of verdict, name, what was found, and what it means. */
export function describeChecks(checks: readonly Check[]): string {
  const rows = checks.map(({ ok, name, found, meaning }) => [
    [ok ? "ok" : "limited"],
    [name],
    wrap(found, FOUND_WIDTH),
    wrap(meaning, MEANING_WIDTH),
  ]);
  const widths = [0, 1, 2].map((column) =>
    Math.max(...rows.flatMap((row) => (row[column] ?? []).map((text) => text.length))),
  );
  const lines = rows.flatMap((row) =>
    Array.from({ length: Math.max(...row.map((cell) => cell.length)) }, (_, index) =>
      row
        .map((cell, column) => (cell[index] ?? "").padEnd(widths[column] ?? 0))
        .join(GAP)
        .trimEnd(),
    ),
  );
  return `${lines.join("\n")}\n`;
}
