import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { goalsReport, headlines, type Report } from "./report.ts";

const ROOT = join(import.meta.dirname, "../../..");
/** The data of the last complete run: what all figures of the documents are made from. */
const DATA_FILE: string = join(ROOT, "docs/performance.json");

const BEGIN = "<!-- figures -->";
const END = "<!-- end of figures -->";

/** Replaces the text between the two marks of a document. Throws if the document lacks them. */
function insertInto(document: string, text: string): string {
  const begin = document.indexOf(BEGIN);
  const end = document.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`the document has no "${BEGIN}" and "${END}"`);
  return `${document.slice(0, begin + BEGIN.length)}\n\n${text}\n\n${document.slice(end)}`;
}

/** The content of the data file for a run: a row a line, so that two runs can be compared. */
export function dataOf({ rows, ...run }: Report): string {
  const head = JSON.stringify(run, undefined, 1).slice(0, -2);
  return `${head},\n "rows": [\n${rows.map((row) => `  ${JSON.stringify(row)}`).join(",\n")}\n ]\n}\n`;
}

/** Every document with figures by its path, with this run's figures. */
export function documentsOf(report: Report): ReadonlyMap<string, string> {
  const withFigures = (path: string, text: string): [string, string] => {
    const file = join(ROOT, path);
    return [file, insertInto(readFileSync(file, "utf8"), text)];
  };
  return new Map([
    withFigures("README.md", headlines(report)),
    withFigures("docs/performance.md", goalsReport(report)),
  ]);
}

/** The last complete run. */
export function readData(): Report {
  return JSON.parse(readFileSync(DATA_FILE, "utf8")) as Report;
}

/** Makes the documents' figures from the data file. */
export function publish(): void {
  for (const [file, text] of documentsOf(readData())) writeFileSync(file, text);
}
