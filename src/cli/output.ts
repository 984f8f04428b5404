import { once } from "node:events";
import { type DescMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import type { HealthResponse, RunHookResponse } from "../client/index.ts";

/** A message as guestctl's JSON shows it: the schema's own names, and every field. */
export function messageObject<Desc extends DescMessage>(schema: Desc, message: MessageShape<Desc>): object {
  return toJson(schema, message, { alwaysEmitImplicit: true, useProtoFieldName: true }) as object;
}

/** One line of JSON. */
export function jsonLine(object: object): string {
  return `${JSON.stringify(object)}\n`;
}

/** Writes to a stream, and waits where it has enough for now. */
export async function writeAll(stream: NodeJS.WritableStream, output: string | Uint8Array): Promise<void> {
  if (!stream.write(output)) await once(stream, "drain");
}

/** A name and the text beside it. */
export type ReportLine = readonly [name: string, text: string];

/** Lines of names, padded to that width, and texts, which may come from a sandbox. */
export function reportText(lines: readonly ReportLine[], width: number): string {
  return lines.map(([name, text]) => `${`${name}:`.padEnd(width)}${printable(text)}\n`).join("");
}

/** One line of text for a person's terminal, which a sandbox must not control. */
export function printable(text: string): string {
  return text.replaceAll(/\p{Cc}/gu, "?");
}

/** Rows of cells in columns as wide as their widest cell; the first row has all columns. */
export function tableText(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ");
  return rows.map((row) => `${line(row).trimEnd()}\n`).join("");
}

/** Why an agent is not ready, by the last run of ready_cmd. */
export function unreadyReason({ readyCmdExit }: HealthResponse): string {
  return `ready_cmd: ${readyCmdExit < 0 ? "no verdict yet" : `exit ${readyCmdExit}`}`;
}

/** How a hook ended. */
export function hookWords({ ran, timedOut, exitCode }: Pick<RunHookResponse, "ran" | "timedOut" | "exitCode">): string {
  if (!ran) return "not configured";
  return timedOut ? "killed at its timeout" : `exit ${exitCode}`;
}

/** Quotes a word for a POSIX shell. */
export function quoted(text: string): string {
  return /^[\w./:@%+,=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
