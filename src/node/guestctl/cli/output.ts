import { isUtf8 } from "node:buffer";
import { withEscapes } from "./raw-names.ts";
import { once } from "node:events";
import type { Health, HookResult } from "../../client/index.ts";

/**
 * An object of the library in guestctl's JSON: its names as those of the schema, null for what is undefined or no
 * number.
 */
export function inSnakeCase(given: object): object {
  const entries = Object.entries(given).map(([name, value]: [string, unknown]) => [
    name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    Number.isNaN(value) ? null : (value ?? null),
  ]);
  return Object.fromEntries(entries) as object;
}

/**
 * Characters that act on a terminal, or on the order in which it shows others: control characters with DEL and those of
 * ISO 6429 (C1), line separators, and the overrides of bidirectional text (UAX #9), which can hide what a name is.
 */
const CONTROLS = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/** One line of JSON, without any character that acts on a terminal: JSON has an escape for each. */
export function jsonLine(object: object): string {
  const escaped = JSON.stringify(object).replaceAll(
    CONTROLS,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return `${escaped}\n`;
}

/** Writes to a stream, and waits while it is full. */
export async function writeAll(stream: NodeJS.WritableStream, output: string | Uint8Array): Promise<void> {
  if (!stream.write(output)) await once(stream, "drain");
}

/** A name and the text beside it. */
export type ReportLine = readonly [name: string, text: string];

/** Lines of names, in a column as wide as the longest, and texts, which may come from a sandbox. */
export function reportText(
  lines: readonly ReportLine[],
  longest: number = longestOf(lines.map(([name]) => name.length)),
): string {
  const width = longest + ": ".length;
  return lines.map(([name, text]) => `${`${name}:`.padEnd(width)}${printable(text)}\n`).join("");
}

/** One line of text for a person's terminal, which a sandbox must not control. */
export function printable(text: string): string {
  return withEscapes(text).replaceAll(CONTROLS, "?");
}

/** Lines of text for a person's terminal, with their tabs. */
export function printableText(text: string): string {
  return text.replaceAll(CONTROLS, (character) => (/[\n\t]/.test(character) ? character : "?"));
}

/**
 * A name or path of a sandbox in one line: bytes that are not UTF-8 and characters that act on a terminal are escaped
 * as `\xe9`, which the commands take in a path, and so is a backslash that would begin such an escape.
 */
export function shownPath(raw: Uint8Array): string {
  const bytes = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength);
  let shown = "";
  for (let at = 0; at < bytes.length;) {
    const length = characterLength(bytes, at);
    const character = length === 0 ? "" : bytes.toString("utf8", at, at + length);
    const isEscape = character === "\\" && /^\\x[\da-f]{2}/.test(bytes.toString("latin1", at, at + 4));
    if (length > 0 && !isEscape && character.replaceAll(CONTROLS, "") !== "") shown += character;
    else shown += bytes.toString("hex", at, at + Math.max(1, length)).replaceAll(/../g, "\\x$&");
    at += Math.max(1, length);
  }
  return shown;
}

/** Length of the UTF-8 character that begins there; 0: none does. */
function characterLength(bytes: Buffer, at: number): number {
  for (let length = 1; length <= 4 && at + length <= bytes.length; length++)
    if (isUtf8(bytes.subarray(at, at + length))) return length;
  return 0;
}

/** Rows of cells, which may come from a sandbox, in columns as wide as their widest; the first row has all columns. */
export function tableText(rows: readonly (readonly string[])[]): string {
  const cells = rows.map((row) => row.map(printable));
  const widths = (rows[0] ?? []).map((_, column) => longestOf(cells.map((row) => columnsOf(row[column] ?? ""))));
  const line = (row: readonly string[]): string =>
    row.map((cell, column) => cell + " ".repeat((widths[column] ?? 0) - columnsOf(cell))).join("  ");
  return cells.map((row) => `${line(row).trimEnd()}\n`).join("");
}

/** Not Math.max(...): a function takes some 125,000 arguments. */
function longestOf(lengths: readonly number[]): number {
  return lengths.reduce((longest, length) => Math.max(longest, length), 0);
}

/** Columns that a terminal gives a text: two for the wide characters of East Asia (UAX #11) and for emoji. */
function columnsOf(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let columns = 0;
  for (const character of text.replaceAll(/[\p{Mn}\p{Me}\p{Cf}]/gu, "")) columns += WIDE.test(character) ? 2 : 1;
  return columns;
}

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6]|[\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u;

/** Why an agent is not ready, by the last run of ready_cmd. */
export function unreadyReason({ readyCmdExit }: Health): string {
  return `ready_cmd: ${readyCmdExit < 0 ? "no verdict yet" : `exit ${readyCmdExit}`}`;
}

/** How a hook ended. */
export function hookWords({ ran, timedOut, exitCode }: Pick<HookResult, "ran" | "timedOut" | "exitCode">): string {
  if (!ran) return "not configured";
  return timedOut ? "killed at its timeout" : `exit ${exitCode}`;
}

/** The last millisecond that a Date holds, on both sides of 1970 (ECMA-262, 21.4.1.1); the library uses the nearest. */
const DATE_LIMIT_MS = 8.64e15;

/** A file's time in UTC, to the second, or with nanoseconds; files may have times that no Date holds. */
export function fileTime(time: Date, nanos?: number): string {
  if (Math.abs(time.getTime()) >= DATE_LIMIT_MS) return "out of range";
  const fraction = nanos === undefined ? "" : `.${String(nanos).padStart(9, "0")}`;
  return time.toISOString().replace(/\.\d{3}Z$/, `${fraction}Z`);
}

/** Quotes a word for a POSIX shell. */
export function quoted(text: string): string {
  return /^[\w./:@%+,=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A size for people. */
export function sizeWords(bytes: number | undefined): string {
  if (bytes === undefined) return "-";
  const power = bytes < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${UNITS[power]}`;
}
