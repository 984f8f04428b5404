import {
  COMMAND_LINE_LIMIT_BYTES,
  COMMAND_LINES_LIMIT_BYTES,
  type SessionProcess,
  type SessionProcesses,
  type Timers,
} from "../domain/index.ts";

/** A process whose command line is not read within this time is listed without a command line. */
const ANSWER_MS = 1_000;
/** Limit for reading all command lines of an answer. After this time, processes are listed without a command line. */
const ANSWERS_MS = 3_000;
/** Largest number of reads that may hang at once, in all calls together, because each occupies a thread. */
const STUCK_LIMIT = 2;

export interface CommandLine {
  readonly bytes: Uint8Array;
  readonly truncated: boolean;
}

const UNKNOWN: CommandLine = { bytes: new Uint8Array(), truncated: false };

/**
 * Reads command lines, but stops waiting soon if a read hangs. A read requires the memory lock of the process. A thread
 * of the process may hold this lock while it waits for a file system that hangs.
 */
export class CommandLines {
  readonly #processes: Pick<SessionProcesses, "commandLine">;
  readonly #timers: Timers;
  /** Processes for which a read hangs. Their command lines are not read again until that read has returned. */
  readonly #silent = new Set<string>();

  constructor(processes: Pick<SessionProcesses, "commandLine">, timers: Timers) {
    this.#processes = processes;
    this.#timers = timers;
  }

  /** Reads the command lines one after another, because all file calls share the same threads. */
  async of(processes: readonly SessionProcess[]): Promise<CommandLine[]> {
    let isOver = false;
    let leftBytes: number = COMMAND_LINES_LIMIT_BYTES;
    const cancel = this.#timers.after(ANSWERS_MS, () => (isOver = true));
    const lines: CommandLine[] = [];
    for (const one of processes) {
      const line = isOver || leftBytes === 0 ? UNKNOWN : await this.#ask(one, leftBytes);
      leftBytes -= line.bytes.length;
      lines.push(line);
    }
    cancel();
    return lines;
  }

  async #ask({ pid, startTicks }: SessionProcess, leftBytes: number): Promise<CommandLine> {
    const key = `${pid}:${startTicks}`;
    if (this.#silent.has(key) || this.#silent.size >= STUCK_LIMIT) return UNKNOWN;
    const limitBytes = Math.min(COMMAND_LINE_LIMIT_BYTES, leftBytes);
    // Reading one byte more than the limit shows whether the command line is longer.
    const asked = this.#processes.commandLine(pid, limitBytes + 1);
    this.#silent.add(key);
    void asked.then(() => this.#silent.delete(key));
    const { promise: late, resolve } = Promise.withResolvers<undefined>();
    const cancel = this.#timers.after(ANSWER_MS, () => resolve(undefined));
    const bytes = (await Promise.race([asked, late]).finally(cancel)) ?? UNKNOWN.bytes;
    return { bytes: bytes.subarray(0, limitBytes), truncated: bytes.length > limitBytes };
  }
}
