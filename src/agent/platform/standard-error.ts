import { writeSync } from "node:fs";
import type { Clock, Log, LogFields, LogLevel } from "../domain/index.ts";
import type { Addon } from "../native/index.ts";

const STDERR = 2;

/**
 * Keeps modules from opening standard error while they are loaded. Node would make the stream non-blocking for all
 * processes that share it, and writes of the workload would then fail when the stream is full.
 */
export function leaveStandardErrorBlocking(): void {
  Object.defineProperty(process, "stderr", { value: undefined });
  // Node's own listener for warnings prints to `process.stderr`. This is undefined now, so the listener would throw and
  // thereby end the process.
  process.removeAllListeners("warning");
}

/** Logs Node's warnings from now on. Each warning means that something is wrong in the agent. */
export function logWarnings(log: Log): void {
  process.on("warning", ({ name, message }) => log.warn("node_warning", { name, problem: message }));
}

/** Prints a line for a person. For use before the log exists. */
export function printError(line: string): void {
  writeSync(STDERR, errorLine(line));
}

/** Returns the line that `printError` writes for a message. */
export function errorLine(line: string): Buffer {
  return Buffer.from(`guest-agent: ${line}\n`);
}

/** Queues one whole line. Returns false if the queue is full. Never blocks or throws. */
export type LineWriter = (line: Uint8Array) => boolean;

/** Accepts log lines without waiting, and can wait until they are written. */
export interface LineOutput {
  readonly write: LineWriter;
  /** Waits up to FLUSH_LIMIT_MS until the queued lines are written. Call it before the process exits. */
  flush(): void;
}

const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];
/** PIPE_BUF: a write of up to this size to a pipe is atomic. */
const LINE_LIMIT_BYTES = 4096;
const TEXT_LIMIT_CHARACTERS = 1024;
/** Capacity of the queue of lines that wait because standard error is full. It has room for about 400 typical lines. */
const QUEUE_BYTES = 64 * 1024;
/** Limit for flushing, so that a standard error stream that no process reads does not block the agent's exit. */
const FLUSH_LIMIT_MS = 1_000;

/**
 * Writes log lines to standard error through a queue in memory. process.stderr is not used, because Node would make it
 * non-blocking, also for the workload. If the stream is full, lines are delayed, and dropped when the queue is full.
 */
export function stderrLines(addon: Pick<Addon, "BackgroundWriter">): LineOutput {
  const writer = new addon.BackgroundWriter(STDERR, QUEUE_BYTES);
  return { write: (line) => writer.write(line), flush: () => void writer.drain(FLUSH_LIMIT_MS) };
}

/** Formats a time as RFC 3339 specifies, in UTC with milliseconds. */
function timeOf(wallNs: bigint): string {
  return new Date(Number(wallNs / 1_000_000n)).toISOString();
}

function shorten(_name: string, value: unknown): unknown {
  if (typeof value !== "string" || value.length <= TEXT_LIMIT_CHARACTERS) return value;
  return `${value.slice(0, TEXT_LIMIT_CHARACTERS)}…`;
}

/**
 * A function for each log level, which logs an event. The interface `Log` restricts these functions to known events and
 * their fields.
 */
type EventWriter = Readonly<Record<LogLevel, (event: string, fields?: LogFields) => void>>;

/**
 * Logs events of at least `level`, each as a JSON object in a line. After dropped lines, the next line has their
 * number.
 */
export function jsonLog(level: LogLevel, clock: Clock, write: LineWriter): EventWriter {
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
