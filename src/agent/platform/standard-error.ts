import { writeSync } from "node:fs";
import type { Clock, Log, LogFields, LogLevel } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";

const STDERR = 2;

/**
 * Keeps Node from opening standard error, which some of its modules do when they load, to find out about colours. That
 * would make the stream non-blocking for all processes that share it, and the workload's writes would fail whenever it
 * is full.
 */
export function leaveStandardErrorBlocking(): void {
  Object.defineProperty(process, "stderr", { value: undefined });
  // Node would print its warnings there, fail, and end the process.
  process.removeAllListeners("warning");
}

/** Logs Node's warnings from now on: each points to a fault in the agent. */
export function logWarnings(log: Log): void {
  process.on("warning", ({ name, message }) => log.warn("node_warning", { name, problem: message }));
}

/** Prints a line for a person while there is no log. */
export function complain(line: string): void {
  writeSync(STDERR, complaint(line));
}

/** What `complain` prints. */
export function complaint(line: string): Buffer {
  return Buffer.from(`guest-agent: ${line}\n`);
}

/** Queues one whole line; false: it could not. Never blocks or throws. */
export type LineWriter = (line: Uint8Array) => boolean;

/** The output for log lines. */
export interface LineOutput {
  readonly write: LineWriter;
  /** Waits up to FLUSH_LIMIT_MS until the queued lines are written. For the end of the process. */
  flush(): void;
}

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];
/** PIPE_BUF: a write of up to this size to a pipe is never mixed with writes of others. */
const LINE_LIMIT_BYTES = 4096;
const TEXT_LIMIT_CHARACTERS = 1024;
/** Size of the queue for a full standard error: some 400 lines of usual length. */
const QUEUE_BYTES = 64 * 1024;
/** A standard error that nobody reads must not keep the agent from leaving. */
const FLUSH_LIMIT_MS = 1_000;

/**
 * Standard error, through a queue in memory. Not process.stderr: the workload shares this stream, and Node would make
 * it non-blocking for both. A workload that floods it delays the agent's lines; a full queue drops them.
 */
export function stderrLines(addon: Pick<Addon, "BackgroundWriter">): LineOutput {
  const writer = new addon.BackgroundWriter(STDERR, QUEUE_BYTES);
  return { write: (line) => writer.write(line), flush: () => void writer.drain(FLUSH_LIMIT_MS) };
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
