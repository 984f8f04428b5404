import type { Clock, Log, LogFields, LogLevel } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";

/** Takes one line whole, or says that it could not. Never blocks, never throws. */
export type LineWriter = (line: Uint8Array) => boolean;

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];
/** PIPE_BUF: a line up to this size is written whole or not at all, and a pipe that polls writable has room for it. */
const LINE_LIMIT_BYTES = 4096;
const TEXT_LIMIT_CHARACTERS = 1024;
const STDERR = 2;

/**
 * Writes to standard error, unless that would block. Not through process.stderr: the workload shares this stream, and
 * Node would make it non-blocking for both.
 */
export function stderrWriter(addon: Addon): LineWriter {
  return (line) => addon.writable(STDERR) && addon.write(STDERR, line, 0, line.length) === line.length;
}

/** RFC 3339 in UTC, with milliseconds. */
function timeOf(wallNs: bigint): string {
  return new Date(Number(wallNs / 1_000_000n)).toISOString();
}

function shorten(_name: string, value: unknown): unknown {
  if (typeof value !== "string" || value.length <= TEXT_LIMIT_CHARACTERS) return value;
  return `${value.slice(0, TEXT_LIMIT_CHARACTERS)}…`;
}

/** Logs events of at least `level`, one JSON object a line. Lines that cannot be written are counted in the next. */
export function jsonLog(level: LogLevel, clock: Clock, write: LineWriter): Log {
  let dropped = 0;
  const least = LEVELS.indexOf(level);
  const log = (of: LogLevel, event: string, fields: LogFields): void => {
    if (LEVELS.indexOf(of) < least) return;
    const head = { time: timeOf(clock.wallNs()), level: of, event };
    const tail = dropped > 0 ? { dropped_lines: dropped } : {};
    let line = Buffer.from(`${JSON.stringify({ ...head, ...fields, ...head, ...tail }, shorten)}\n`);
    if (line.length > LINE_LIMIT_BYTES) line = Buffer.from(`${JSON.stringify({ ...head, ...tail, too_long: true })}\n`);
    if (write(line)) dropped = 0;
    else dropped++;
  };
  return {
    debug: (event, fields = {}) => log("debug", event, fields),
    info: (event, fields = {}) => log("info", event, fields),
    warn: (event, fields = {}) => log("warn", event, fields),
    error: (event, fields = {}) => log("error", event, fields),
  };
}
