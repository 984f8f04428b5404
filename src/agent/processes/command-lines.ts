import {
  COMMAND_LINE_LIMIT_BYTES,
  COMMAND_LINES_LIMIT_BYTES,
  type SessionProcess,
  type SessionProcesses,
  type Timers,
} from "../domain/index.ts";

/** A process that has not answered within this time is listed without its command line. */
const ANSWER_MS = 1_000;
/** Limit for all processes of an answer. Those that were not asked by then are listed without their command line. */
const ANSWERS_MS = 3_000;
/** Largest number of stuck processes to wait for, in all calls together: each occupies a thread. */
const STUCK_LIMIT = 2;

export interface CommandLine {
  readonly bytes: Uint8Array;
  readonly truncated: boolean;
}

const UNKNOWN: CommandLine = { bytes: new Uint8Array(), truncated: false };

/**
 * Reads command lines without waiting for a process that is stuck: the kernel reads them from the memory of the
 * process, and waits for its memory lock, which a thread may hold while it waits for a file system that hangs.
 */
export class CommandLines {
  readonly #processes: Pick<SessionProcesses, "commandLine">;
  readonly #timers: Timers;
  /** Processes that have not answered yet. Each blocks a thread, so it is not asked again until it has answered. */
  readonly #silent = new Set<string>();

  constructor(processes: Pick<SessionProcesses, "commandLine">, timers: Timers) {
    this.#processes = processes;
    this.#timers = timers;
  }

  /** One after another, because all file calls share the same threads. */
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
    // One byte more shows whether there is more.
    const asked = this.#processes.commandLine(pid, limitBytes + 1);
    this.#silent.add(key);
    void asked.then(() => this.#silent.delete(key));
    const { promise: late, resolve } = Promise.withResolvers<undefined>();
    const cancel = this.#timers.after(ANSWER_MS, () => resolve(undefined));
    const bytes = (await Promise.race([asked, late]).finally(cancel)) ?? UNKNOWN.bytes;
    return { bytes: bytes.subarray(0, limitBytes), truncated: bytes.length > limitBytes };
  }
}
