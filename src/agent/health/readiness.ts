import { AgentError, type ChildProcess, type Log, type ReadyCommandSpec, type Timers } from "../domain/index.ts";
import { followToEnd, KILL, TERMINATE } from "../session/index.ts";
import type { Readiness } from "./health.ts";

/** Exit code that is reported if ready_cmd exceeds its timeout; timeout(1) uses the same code. */
const TIMED_OUT_EXIT = 124;
/** Exit codes of shells: the command was not found (127), or could not be started (126). */
const NOT_FOUND_EXIT = 127;
const NOT_STARTED_EXIT = 126;
const NO_VERDICT_EXIT = -1;

export interface ReadinessParts {
  readonly spec: ReadyCommandSpec;
  /** Starts ready_cmd with its output on pipes, like an exec. */
  readonly start: (args: readonly string[], abort: AbortSignal) => Promise<ChildProcess>;
  /** Called when the result of a run differs from that of the previous run. */
  readonly onChange: () => void;
  readonly timers: Timers;
  readonly log: Log;
}

/** Runs ready_cmd repeatedly and remembers the last result. */
export class ReadinessLoop {
  readonly #parts: ReadinessParts;
  #verdict: Readiness = { ready: false, exitCode: NO_VERDICT_EXIT };
  /** Cancels the wait for the next run. */
  #cancelWait: () => void = () => {};
  /**
   * The latest run of ready_cmd; undefined while paused. The result of an earlier run is ignored, even if it comes
   * later.
   */
  #run: AbortController | undefined;
  /** A promise for each run of ready_cmd that has not ended yet, even if a newer run has replaced it. */
  readonly #ending: Set<Promise<void>> = new Set();
  #stopped = false;

  constructor(parts: ReadinessParts) {
    this.#parts = parts;
  }

  /** Result of the last complete run of ready_cmd. */
  get verdict(): Readiness {
    return this.#verdict;
  }

  /** Runs ready_cmd now. Ends a run that is in progress and ignores its result. */
  runNow(): void {
    if (this.#stopped) return;
    this.#cancelWait();
    this.#run?.abort(TERMINATE);
    const run = new AbortController();
    this.#run = run;
    const ended = this.#once(run).then(() => void this.#ending.delete(ended));
    this.#ending.add(ended);
  }

  /**
   * Pauses the runs of ready_cmd until `runNow` is called. A run that is in progress is killed, and its result is not
   * used. Resolves when no process of that run is left.
   */
  async pause(): Promise<void> {
    this.#cancelWait();
    this.#run?.abort(KILL);
    this.#run = undefined;
    await Promise.all(this.#ending);
  }

  /** Ends a run that is in progress, and starts no more runs. Resolves when no process of the run is left. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancelWait();
    this.#run?.abort(TERMINATE);
    await Promise.all(this.#ending);
  }

  async #once(run: AbortController): Promise<void> {
    const { spec, timers } = this.#parts;
    let timedOut = false;
    const cancelTimeout = timers.after(spec.timeoutMs, () => {
      timedOut = true;
      run.abort(TERMINATE);
    });
    const code = await this.#exitCodeOf(run.signal);
    cancelTimeout();
    if (this.#run !== run || this.#stopped) return;
    this.#conclude(timedOut ? TIMED_OUT_EXIT : code);
    this.#cancelWait = timers.after(spec.intervalMs, () => this.runNow());
  }

  /**
   * Runs ready_cmd and resolves with its exit code. After an abort, resolves only when its whole process tree has
   * ended.
   */
  async #exitCodeOf(signal: AbortSignal): Promise<number> {
    const { start, spec } = this.#parts;
    try {
      const child = await start(spec.args, signal);
      for (const stream of [child.stdout, child.stderr]) {
        stream?.start({ chunk: (_bytes, release) => release(), end: () => {} });
      }
      const { end } = await followToEnd(child, signal);
      child.release();
      return end.code;
    } catch (error) {
      return error instanceof AgentError && error.reason === "EXEC_NOT_FOUND" ? NOT_FOUND_EXIT : NOT_STARTED_EXIT;
    }
  }

  #conclude(code: number): void {
    const before = this.#verdict.exitCode;
    this.#verdict = { ready: code === 0, exitCode: code };
    if (code === before) return;
    this.#parts.log.info("readiness_changed", { ready: code === 0, exit_code: code });
    this.#parts.onChange();
  }
}
