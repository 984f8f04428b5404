import type { LogEvent, LogFieldsOf } from "../log-events.ts";

export interface Clock {
  /** CLOCK_REALTIME in nanoseconds since 1970. Jumps when the clock is stepped. */
  wallNs(): bigint;
  /** A monotonic clock in milliseconds, for durations and deadlines. */
  monotonicMs(): number;
}

/** One moment, as read from the wall clock and from the monotonic clock. */
export interface Instant {
  /** Time of the wall clock in nanoseconds since 1970. */
  readonly wallNs: bigint;
  readonly monotonicMs: number;
}

/** Timers on the monotonic clock. */
export interface Timers {
  /** Runs the task once after `delayMs`, unless the returned function is called before. */
  after(delayMs: number, task: () => void): () => void;
}

/** Symbolic errno of a failed call, such as "EPERM". */
export type Errno = string;

/** The kernel's random generator, accessed through its device. */
export interface EntropyDevice {
  /**
   * Mixes a block of at most 512 bytes into the kernel's entropy pool and counts it as entropy (RNDADDENTROPY). Returns
   * undefined on success.
   */
  credit(block: Uint8Array): Errno | undefined;
  /** Mixes bytes into the pool without counting them as entropy. Returns how many were accepted. */
  mix(bytes: Uint8Array): number | Errno;
  /** Forces a reseed from the pool (RNDRESEEDCRNG). Returns undefined if the kernel reports success. */
  reseed(): Errno | undefined;
  close(): void;
}

export interface Kernel {
  /** Opens the kernel's random device. If the image has another file at the device's path, this file is not opened. */
  openEntropyDevice(): EntropyDevice | Errno;
  /** Whether this kernel reports a forced reseed reliably. Older kernels may report success without reseeding. */
  readonly confirmsReseed: boolean;
  /** Steps the guest's clock to a time in nanoseconds since 1970. Returns undefined on success. */
  stepClock(wallNs: bigint): Errno | undefined;
}

/** The random generators of the agent's own process: OpenSSL's, and Node's caches of their output. */
export interface ProcessRandomness {
  /**
   * Reseeds the generators from the kernel and `seed`, and discards numbers that were generated before. Returns
   * undefined on success, otherwise why it failed.
   */
  reseed(seed: Uint8Array): "no_symbols" | "failed" | undefined;
}

/** The user database of the image. Cached until it changes, because every command needs it. */
export interface Accounts {
  /** Content of /etc/passwd; empty if it does not exist. */
  passwd(): Uint8Array | Promise<Uint8Array>;
  /** Content of /etc/group; empty if it does not exist. */
  group(): Uint8Array | Promise<Uint8Array>;
}

export interface Signals {
  /** Calls `listener` with the number of each signal, in order. Only one listener is allowed. */
  listen(listener: (signal: number) => void): void;
  /** Stops calling the listener. Call it when the agent shuts down. */
  close(): void;
}

/** Severities of log lines, the lowest first. */
export type LogLevel = "debug" | "info" | "warn" | "error";

/**
 * Returns for how many milliseconds the peer of a TCP socket has not acknowledged data that was sent to it. Returns 0
 * or less if all data is acknowledged, or if the kernel does not report it.
 */
export type UnacknowledgedMs = (fd: number) => number;

export interface Log {
  debug<Event extends LogEvent>(event: Event, fields?: LogFieldsOf<Event>): void;
  info<Event extends LogEvent>(event: Event, fields?: LogFieldsOf<Event>): void;
  warn<Event extends LogEvent>(event: Event, fields?: LogFieldsOf<Event>): void;
  error<Event extends LogEvent>(event: Event, fields?: LogFieldsOf<Event>): void;
}

export const SILENT_LOG: Log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

/** The agent's standard output and error, which are the console of the sandbox. */
export interface ConsoleOutput {
  /** Queues bytes in order without waiting. Returns how many were queued; the rest is dropped. */
  write(stream: "stdout" | "stderr", bytes: Uint8Array): number;
  /** Resolves when everything queued is written, or after a second. */
  flushed(): Promise<void>;
}

/**
 * Watches a listening socket. Calls `onLost` when a connection arrives that cannot be accepted, because no descriptor
 * is free; `errno` is then "EMFILE" or "ENFILE". If the socket cannot be watched, never calls `onLost`. Returns a
 * function that ends the watch. Until it is called, the watch keeps the socket open.
 */
export type WatchArrivals = (fd: number, onLost: (errno: string) => void) => () => void;
