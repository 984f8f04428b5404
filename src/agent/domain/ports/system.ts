/** Times of the guest: wall-clock ones since 1970 (CLOCK_REALTIME), monotonic ones from an arbitrary start. */
export interface Clock {
  /** CLOCK_REALTIME, in nanoseconds since 1970. Jumps when the clock is stepped. */
  wallNs(): bigint;
  /** A clock that is never stepped, in milliseconds. For durations and deadlines. */
  monotonicMs(): number;
}

/** One moment on both clocks. */
export interface Instant {
  /** Nanoseconds since 1970. */
  readonly wallNs: bigint;
  /** Milliseconds of the clock that is never stepped. */
  readonly monotonicMs: number;
}

/** Timers on the clock that is never stepped. */
export interface Timers {
  /** Runs the task once, `delayMs` from now, unless the returned function is called before. */
  after(delayMs: number, task: () => void): () => void;
}

/** Symbolic errno of a call that failed, such as "EPERM". */
export type Errno = string;

/** The kernel's random number generator, through its device. */
export interface EntropyDevice {
  /** Mixes a block of at most 512 bytes in and credits all of it (RNDADDENTROPY). Undefined: done. */
  credit(block: Uint8Array): Errno | undefined;
  /** Mixes bytes in without crediting them. Returns how many were taken. */
  mix(bytes: Uint8Array): number | Errno;
  /** Forces a new key from the pool (RNDRESEEDCRNG). Undefined: the kernel reports success. */
  reseed(): Errno | undefined;
  close(): void;
}

/** The kernel's part in the restore duties. */
export interface Kernel {
  /** Opens the real random device, never another file at its path. */
  openEntropyDevice(): EntropyDevice | Errno;
  /** Whether this kernel's report of a forced reseed is reliable: older ones report success without doing anything. */
  readonly confirmsReseed: boolean;
  /** Steps the guest clock, in nanoseconds since 1970. Undefined: done. */
  stepClock(wallNs: bigint): Errno | undefined;
}

/** The random number generators of this process. */
export interface ProcessRandomness {
  /** Reseeds them from the kernel and `seed`, and drops all numbers drawn before. Returns what failed. */
  reseed(seed: Uint8Array): "no_symbols" | "failed" | undefined;
}

/** The user database of the image. Unchanged content comes from memory, because every command asks for it. */
export interface Accounts {
  /** Bytes of /etc/passwd; empty where there is no such file. */
  passwd(): Uint8Array | Promise<Uint8Array>;
  /** Bytes of /etc/group; empty where there is no such file. */
  group(): Uint8Array | Promise<Uint8Array>;
}

/** Signals that the agent itself receives. */
export interface Signals {
  /** Calls `listener` with the number of every signal from now on, in order. One listener. */
  listen(listener: (signal: number) => void): void;
  /** Stops listening; for the agent's own end. */
  close(): void;
}

/** Severity, least first. */
export type LogLevel = "debug" | "info" | "warn" | "error";

/** Fields of an event, in snake_case like its name. Never a token, key, environment value, argument or file content. */
export type LogFields = Readonly<Record<Lowercase<string>, string | number | boolean | undefined>>;

/**
 * Of a TCP socket on which data waits for the peer: milliseconds since the peer's kernel last acknowledged anything
 * that it should; little while it does. 0 or less: no data waits, or the kernel does not say.
 */
export type UnacknowledgedMs = (fd: number) => number;

/** One event a call; `event` is a stable snake_case name. */
export interface Log {
  debug(event: string, fields?: LogFields): void;
  info(event: string, fields?: LogFields): void;
  warn(event: string, fields?: LogFields): void;
  error(event: string, fields?: LogFields): void;
}

/** Logs nothing. */
export const SILENT_LOG: Log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

/** The agent's own standard output and error, which are the console of the sandbox. */
export interface ConsoleOutput {
  /** Queues bytes in order, and never waits. Returns how many: the console loses those that it has no room for. */
  write(stream: "stdout" | "stderr", bytes: Uint8Array): number;
  /** Resolves when all that is queued is written, or after a second. */
  flushed(): Promise<void>;
}

/**
 * Watches a listening socket beside its server. Calls `onLost` for connections that arrive while no descriptor is left,
 * with the errno ("EMFILE", "ENFILE"). Returns a function that ends the watch; until then the socket stays open. Never
 * calls `onLost` where the socket cannot be watched.
 */
export type WatchArrivals = (fd: number, onLost: (errno: string) => void) => () => void;
