import { yieldToEventLoop } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import { type ProcessRow, ProcessTable, rowsOf, UNKNOWN_SESSION } from "./process-table.ts";

export type ReadingCalls = Pick<Addon, "processRows" | "processSessions">;

/** Columns of the result of the addon's `processSessions`. */
const SESSION_COLUMNS = 2;
/** Number of processes to read per tick of the event loop. Reading a process takes 10 us. */
const READ_AT_ONCE = 256;
/**
 * A reading lists all processes again until a listing has no new process, but at most this many times. Without a limit,
 * new processes could prolong a reading for ever.
 */
const MAX_LISTINGS = 4;
/**
 * Number of callers that receive a finished reading in one tick of the event loop. The number is small, because each
 * caller may then signal many processes.
 */
const SERVED_AT_ONCE = 8;
/**
 * A reading that is not urgent starts after a pause, so that polling cannot use up a CPU. The pause is this many times
 * as long as the previous reading took.
 */
const PAUSE_FACTOR = 4;
const LONGEST_PAUSE_MS = 500;

/**
 * Shares one reading among all callers that have requested it before it starts. For example, if hundreds of commands
 * lose their clients at the same time, the process table is read only once.
 */
export class SharedReading<Value> {
  readonly #read: () => Promise<Value>;
  #waiting: ((value: Value | PromiseLike<Value>) => void)[] = [];
  #isUrgent = false;
  #isRunning = false;
  #cancel: (() => void) | undefined;
  #pausedUntilMs = 0;

  constructor(read: () => Promise<Value>) {
    this.#read = read;
  }

  /** Resolves with a reading that starts after this call. An `urgent` reading starts without the usual pause. */
  next(urgent: boolean = false): Promise<Value> {
    const { promise, resolve } = Promise.withResolvers<Value>();
    this.#waiting.push(resolve);
    if (this.#cancel === undefined || (urgent && !this.#isUrgent)) {
      this.#isUrgent ||= urgent;
      this.#schedule();
    }
    return promise;
  }

  #schedule(): void {
    if (this.#isRunning || this.#waiting.length === 0) return;
    this.#cancel?.();
    const pauseMs = this.#isUrgent ? 0 : this.#pausedUntilMs - performance.now();
    const run = (): void => void this.#run();
    if (pauseMs > 0) {
      const timer = setTimeout(run, pauseMs);
      this.#cancel = () => clearTimeout(timer);
    } else {
      const immediate = setImmediate(run);
      this.#cancel = () => clearImmediate(immediate);
    }
  }

  async #run(): Promise<void> {
    const served = this.#waiting;
    [this.#waiting, this.#isUrgent, this.#isRunning, this.#cancel] = [[], false, true, undefined];
    const beganMs = performance.now();
    const reading = this.#read();
    await reading.catch(() => {});
    const endedMs = performance.now();
    this.#pausedUntilMs = endedMs + Math.min(PAUSE_FACTOR * (endedMs - beganMs), LONGEST_PAUSE_MS);
    this.#isRunning = false;
    this.#schedule();
    for (let at = 0; at < served.length; at += SERVED_AT_ONCE) {
      if (at > 0) await yieldToEventLoop();
      for (const resolve of served.slice(at, at + SERVED_AT_ONCE)) resolve(reading);
    }
  }
}

/** The processes of each session at one moment, zombies included. */
export class SessionTable {
  readonly pids: Int32Array;
  readonly sessions: ReadonlyMap<number, readonly number[]>;

  constructor(rows: Int32Array) {
    this.pids = rows.filter((_, at) => at % SESSION_COLUMNS === 0);
    const sessions = new Map<number, number[]>();
    for (const [index, pid] of this.pids.entries())
      sessions.getOrInsertComputed(rows[index * SESSION_COLUMNS + 1] ?? 0, () => []).push(pid);
    this.sessions = sessions;
  }

  /** Whether a process ended before its session could be read. */
  get hasUnknown(): boolean {
    return this.sessions.has(UNKNOWN_SESSION);
  }

  /** Returns the ids of the sessions to which these processes belong. */
  sessionsOf(pids: ReadonlySet<number>): Set<number> {
    const found = this.sessions.entries().filter(([, members]) => members.some((pid) => pids.has(pid)));
    return new Set(found.map(([session]) => session));
  }
}

/**
 * Reads the processes in /proc. Callers that wait at the same time share one reading. If the reading fails, the result
 * is a negated errno. If /proc does not list the agent itself, /proc is not usable, and the result is undefined.
 */
export class ProcessReadings {
  /** Reads only the pid and the session of each process. This takes a seventh of the time of reading `table`. */
  readonly sessions: SharedReading<SessionTable | number | undefined>;
  readonly table: SharedReading<ProcessTable | number | undefined>;

  constructor(calls: ReadingCalls) {
    this.sessions = new SharedReading(() => Promise.resolve(readSessions(calls)));
    this.table = new SharedReading(() => readTable(calls));
  }
}

function readSessions(calls: ReadingCalls): SessionTable | number | undefined {
  const rows = calls.processSessions();
  if (typeof rows === "number") return rows;
  const sessions = new SessionTable(rows);
  return sessions.pids.includes(process.pid) ? sessions : undefined;
}

async function readTable(calls: ReadingCalls): Promise<ProcessTable | number | undefined> {
  const rows: ProcessRow[] = [];
  const seen = new Set<number>();
  let unfinished: ReadonlySet<number> = new Set();
  // A process may exit before its row is read, and leave a child that was not listed. So the listing is repeated until
  // it has no new process.
  for (let round = 0; round < MAX_LISTINGS; round++) {
    const sessions = readSessions(calls);
    if (!(sessions instanceof SessionTable)) return sessions;
    const born = sessions.pids.filter((pid) => !seen.has(pid));
    if (born.length === 0) return new ProcessTable(rows);
    const ended = new Set(born);
    for (let at = 0; at < born.length; at += READ_AT_ONCE) {
      if (at > 0) await yieldToEventLoop();
      const pids = born.subarray(at, at + READ_AT_ONCE);
      const read = calls.processRows(pids);
      if (typeof read === "number") return read;
      for (const row of rowsOf(read)) {
        rows.push(row);
        if (row.alive) ended.delete(row.pid);
      }
      for (const pid of pids) seen.add(pid);
    }
    unfinished = sessions.sessionsOf(ended);
  }
  return new ProcessTable(rows, unfinished);
}
