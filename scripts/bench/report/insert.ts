import { existsSync, readFileSync } from "node:fs";

const BEGIN = "<!-- figures -->";
const END = "<!-- end of figures -->";

/** The text for a file: between its two marks where it has them, else all of it. */
export function insertInto(file: string, text: string): string {
  const document = existsSync(file) ? readFileSync(file, "utf8") : "";
  const begin = document.indexOf(BEGIN);
  const end = document.indexOf(END);
  if (begin < 0 || end < begin) return `${text}\n`;
  return `${document.slice(0, begin + BEGIN.length)}\n\n${text}\n\n${document.slice(end)}`;
}
