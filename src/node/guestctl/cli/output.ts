import { isUtf8 } from "node:buffer";
import { withEscapes } from "./raw-names.ts";
import { once } from "node:events";
import type { Health, HookResult } from "../../client/index.ts";

/**
 * Converts an object of the library to guestctl's JSON: names in snake case, as in the schema, and null for undefined
 * and NaN.
 */
export function inSnakeCase(given: object): object {
  const entries = Object.entries(given).map(([name, value]: [string, unknown]) => [
    name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    Number.isNaN(value) ? null : (value ?? null),
  ]);
  return Object.fromEntries(entries) as object;
}

/**
 * Characters that control a terminal or reorder its text: control characters with DEL and C1 (ISO 6429), line
 * separators, and the controls of bidirectional text (UAX #9), which can disguise a name.
 */
const CONTROLS = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/** Formats an object as one line of JSON. Characters that control a terminal are escaped. */
export function jsonLine(object: object): string {
  const escaped = JSON.stringify(object).replaceAll(
    CONTROLS,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return `${escaped}\n`;
}

/** Writes to a stream. Resolves when the stream accepts more output. */
export async function writeAll(stream: NodeJS.WritableStream, output: string | Uint8Array): Promise<void> {
  if (!stream.write(output)) await once(stream, "drain");
}

/** A label and its text. */
export type ReportLine = readonly [name: string, text: string];

/**
 * Formats one line per label. The texts are aligned in a column, and made printable, because they may come from a
 * sandbox.
 */
export function reportText(
  lines: readonly ReportLine[],
  longest: number = longestOf(lines.map(([name]) => name.length)),
): string {
  const width = longest + ": ".length;
  return lines.map(([name, text]) => `${`${name}:`.padEnd(width)}${printable(text)}\n`).join("");
}

/** Makes one line of text safe to print on a terminal, because it may come from a sandbox. */
export function printable(text: string): string {
  return withEscapes(text).replaceAll(CONTROLS, "?");
}

/** Makes lines of text safe to print on a terminal; newlines and tabs are kept. */
export function printableText(text: string): string {
  return text.replaceAll(CONTROLS, (character) => (/[\n\t]/.test(character) ? character : "?"));
}

/**
 * Formats a name or path in a sandbox in one line. Bytes that are not UTF-8 and characters that control a terminal are
 * escaped, for example as `\xe9`; the commands accept these escapes in a path. A backslash that would begin such an
 * escape is escaped, too.
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

/** Length of the UTF-8 character that begins at an index; 0 if none begins there. */
function characterLength(bytes: Buffer, at: number): number {
  for (let length = 1; length <= 4 && at + length <= bytes.length; length++)
    if (isUtf8(bytes.subarray(at, at + length))) return length;
  return 0;
}

/** Formats rows of cells, which may come from a sandbox, as a table. The first row determines the number of columns. */
export function tableText(rows: readonly (readonly string[])[]): string {
  const cells = rows.map((row) => row.map(printable));
  const widths = (rows[0] ?? []).map((_, column) => longestOf(cells.map((row) => columnsOf(row[column] ?? ""))));
  const line = (row: readonly string[]): string =>
    row.map((cell, column) => cell + " ".repeat((widths[column] ?? 0) - columnsOf(cell))).join("  ");
  return cells.map((row) => `${line(row).trimEnd()}\n`).join("");
}

/** Returns the largest number. Math.max(...lengths) is not used, because a call accepts only about 125,000 arguments. */
function longestOf(lengths: readonly number[]): number {
  return lengths.reduce((longest, length) => Math.max(longest, length), 0);
}

/**
 * Returns the number of columns that a text occupies on a terminal. East Asian wide characters (UAX #11) and emoji
 * occupy two.
 */
function columnsOf(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let columns = 0;
  for (const character of text.replaceAll(/[\p{Mn}\p{Me}\p{Cf}]/gu, "")) columns += WIDE.test(character) ? 2 : 1;
  return columns;
}

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6]|[\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u;

/** Why an agent is not ready, according to the last run of ready_cmd. */
export function unreadyReason({ readyCmdExit }: Health): string {
  return readyCmdExit < 0 ? "ready_cmd: no result yet" : `ready_cmd: exit ${readyCmdExit}`;
}

export function hookWords({ ran, timedOut, exitCode }: Pick<HookResult, "ran" | "timedOut" | "exitCode">): string {
  if (!ran) return "not configured";
  return timedOut ? "killed at its timeout" : `exit ${exitCode}`;
}

/** The largest absolute time value of a Date (ECMA-262, 21.4.1.1). The library clamps file times to it. */
const DATE_LIMIT_MS = 8.64e15;

/**
 * Formats a file's time in UTC, to the second or with nanoseconds. For a time that a Date cannot represent, returns
 * "out of range".
 */
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

/** Formats a size with a binary unit; "-" if it is not known. */
export function sizeWords(bytes: number | undefined): string {
  if (bytes === undefined) return "-";
  const power = bytes < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${UNITS[power]}`;
}
